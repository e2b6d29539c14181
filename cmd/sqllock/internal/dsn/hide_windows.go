package dsn

// overwrite does nothing: os.Args are a copy here.
func overwrite(string, int, int) {}
