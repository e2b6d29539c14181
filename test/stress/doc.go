//go:build unix

// Package stress lets worker processes use locks while faults strike, writes down every call and return, and
// checks afterwards that what is promised held.
//
// A run is made of rounds. In each a few worker processes acquire and release a few names, one of which has
// permits, and do two things under them: a read-modify-write of a row in the same database, guarded by Lock.Guard
// and nothing else, and one of a register outside the database, which compares tokens. All of them read the same
// monotonic clock of the machine, so their records can be laid beside each other. Meanwhile faults strike, drawn
// from the round's seed. When the round is over, [check] judges its history.
//
// That the checks would notice is checked too: [Variants] are locks that are known to be broken.
//
// A next version has to run beside the last one while it is deployed. So every second worker of a round may be one of
// another [Revision]. Such a round begins on the tables of that, and today's migrations are applied in the middle of it.
//
// Where to look:
//
//	names.go      the locks
//	worker.go     what a worker process does
//	record.go     what it writes down; witness.go, what its strategy is asked
//	detach.go     locks that are left to another process
//	plan.go       which faults strike, when and whom
//	fault.go      how they are made
//	round.go      one round, from the start of the workers to the last check
//	history.go    records read back
//	check.go      the checks
//	line.go       who stood in line, from the records
//	order.go      first come, first served
//	idle.go       names that nobody had while others waited
//	model.go      the model of a lock, for the linearizability checker
//	variant.go    known-bad variants
//	revision.go   another revision, whose workers run beside ours
//	report.go     the tables
package stress
