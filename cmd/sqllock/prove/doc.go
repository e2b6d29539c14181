// Package prove is a test, and nothing else. It runs the conformance suite on a database of yours, in a schema or database
// of its own that it removes afterwards:
//
//	go test ./cmd/sqllock/prove -count=1 -timeout 1h -parallel 6 -v -dsn-file ~/.sqllock
//	go test ./cmd/sqllock/prove -count=1 -timeout 1h -parallel 6 -v -dsn sqlite:/mnt/nfs/locks.db -run 'TestProve/cas/.*/guard'
//
// Releases have it as a program, sqllock-prove, with the same flags, whose names begin with -test. there: sqllock-prove
// -test.parallel 6 -test.v -dsn-file ~/.sqllock.
package prove
