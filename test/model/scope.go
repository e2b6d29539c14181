package model

// Protocol is the lease protocol, with a fault if it has one, and what may
// happen to it.
type Protocol struct {
	Fault Fault
	Scope Scope
}

// Scope bounds a search.
type Scope struct {
	Name string
	// Owners is how many acquisitions each client may make.
	Owners [clients]int8
	// Horizon is how many ticks the search looks ahead.
	Horizon int8
	// Delayed is how many statements may be on their way at a time whose answer
	// nobody waits for: at most 2.
	Delayed int8
	// What happens, besides acquisitions, renewals, releases, and time.
	Losses, Extends, Guards, Pauses, Crashes, Reaps bool
	// Recoveries is how often the database may go on without its last commits.
	Recoveries int8
}

// The scopes. Everything in one of them would be too much: each has what
// matters to each other.
var (
	Late     = Scope{Name: "late", Owners: [...]int8{1, 1}, Horizon: 4, Delayed: 2, Losses: true}
	Again    = Scope{Name: "again", Owners: [...]int8{2, 1}, Horizon: 5, Delayed: 1, Pauses: true}
	Extended = Scope{Name: "extended", Owners: [...]int8{1, 1}, Horizon: 4, Delayed: 1, Extends: true, Crashes: true}
	Guarded  = Scope{Name: "guarded", Owners: [...]int8{1, 1}, Horizon: 4, Delayed: 1, Losses: true, Guards: true, Crashes: true}
	Reaped   = Scope{Name: "reaped", Owners: [...]int8{1, 1}, Horizon: 4, Delayed: 1, Losses: true, Pauses: true, Reaps: true}
	Lossless = Scope{
		Name: "lossless", Owners: [...]int8{1, 1}, Horizon: 4, Delayed: 1,
		Guards: true, Pauses: true, Crashes: true, Reaps: true,
	}
	Recovered = Scope{Name: "recovered", Owners: [...]int8{1, 1}, Horizon: 4, Delayed: 1, Losses: true, Recoveries: 1}
	Twice     = Scope{Name: "recovered twice", Owners: [...]int8{1, 1}, Horizon: 4, Delayed: 1, Recoveries: 2}
	Longer    = Scope{Name: "longer", Owners: [...]int8{1, 1}, Horizon: 4, Delayed: 1, Extends: true, Recoveries: 1}
)
