package dsn

// Driver is the target as its driver reads it.
func (t Target) Driver() string { return t.driver }

// StateFolder is stateFolder.
var StateFolder = stateFolder
