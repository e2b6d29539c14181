// Package prove tries on a user's own database whether what sqllock promises holds there: it runs the conformance suite
// and a short history with faults, in tables of its own, and says of each promise what came out.
//
// A strategy is tried by a process of its own, because the suite is one of package testing: what that prints is read
// here, and a case that takes the process with it leaves the tables to be removed by the one that made them.
package prove
