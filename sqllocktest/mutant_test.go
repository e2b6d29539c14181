package sqllocktest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

// mutants are strategies with one fault each, and a case of the suite that has
// to fail for it. The same case passes in TestMemory.
var mutants = []struct {
	name   string
	caught string
	wrap   func(*sqllocktest.Memory) strategies.Strategy
}{
	{"token starts again after release", "token/grows over releases", changed(mutation{
		token: func(int64, strategies.Request) int64 { return 1 },
	})},
	{"token of the earlier grant after a take-over", "token/grows over a take-over", changed(mutation{
		token: func(token int64, _ strategies.Request) int64 { return -token },
	})},
	{"no exclusion", "exclusion/two processes", changed(mutation{acquire: takeAnyway})},
	{"no exclusion", "exclusion/hammer", changed(mutation{acquire: takeAnyway})},
	{"no HeldError", "exclusion/two processes", changed(mutation{
		acquire: func(ctx context.Context, m *sqllocktest.Memory, r strategies.Request) (strategies.Grant, error) {
			grant, err := strategies.AcquireOne(ctx, m, r)
			if errors.Is(err, sqllock.ErrNotAcquired) {
				err = sqllock.ErrNotAcquired
			}

			return grant, err
		},
	})},
	{"release without regard to the owner", "owner/a stale grant touches no successor", changed(mutation{
		release: func(ctx context.Context, g changedGrant) (bool, error) {
			contended, err := g.release(ctx)
			g.memory.Lose(g.name)

			return contended, err
		},
	})},
	{"release frees nothing", "exclusion/two processes", changed(mutation{
		release: func(context.Context, changedGrant) (bool, error) { return false, nil },
	})},
	{"release hides a loss", "owner/a stale grant touches no successor", changed(mutation{release: leaveUnheard})},
	{"a second release is a loss", "owner/a released grant touches no successor", changed(mutation{
		release: func(ctx context.Context, g changedGrant) (bool, error) {
			if g.Check(ctx) != nil {
				return false, sqllock.ErrLost
			}

			return g.release(ctx)
		},
	})},
	{"renewal without regard to the owner", "owner/a stale grant touches no successor", changed(mutation{
		renew: func(context.Context, changedGrant, time.Duration) error { return nil },
	})},
	{"renewal does nothing", "extend/longer", changed(mutation{renew: renewNothing})},
	{"renewal takes any error for a loss", "ambiguity/renewal without an answer", changed(mutation{
		renew: func(ctx context.Context, g changedGrant, lease time.Duration) error {
			if g.Renew(ctx, lease) != nil {
				return sqllock.ErrLost
			}

			return nil
		},
	})},
	{"check asks nobody", "lease/the database's clock decides", changed(mutation{
		check: func(context.Context, changedGrant) error { return nil },
	})},
	{"guard does not pin", "guard/pins until the transaction ends", changed(mutation{guard: checkOnly})},
	{"guard does not look", "guard/after a take-over", changed(mutation{
		guard: func(context.Context, changedGrant, strategies.Tx) error { return nil },
	})},
	{"guard asks for a running lease", "guard/after the lease expired", changed(mutation{
		guard: func(ctx context.Context, g changedGrant, tx strategies.Tx) error {
			if err := g.Check(ctx); err != nil {
				return err
			}

			return g.Guard(ctx, tx)
		},
	})},
	{"a raise that the row does not know", "raise/the next token is larger", changed(mutation{raise: raiseNothing})},
	{"a raise that lowers", "raise/never lower", changed(mutation{raise: raiseNothing})},
	{"a raise without regard to the owner", "raise/by one who lost it", changed(mutation{
		raise: func(ctx context.Context, g changedGrant, token int64) (strategies.Grant, error) {
			if raised, err := g.Raise(ctx, token); err == nil {
				return raised.Grant, nil
			}

			return g.Grant.Grant, nil
		},
	})},
	{"settling does nothing", "ambiguity/acquire without an answer is given back", changed(mutation{
		settle: func(context.Context, *sqllocktest.Memory, strategies.Request) error { return nil },
	})},
	{"settling ends anybody's", "owner/settling touches no successor", changed(mutation{
		settle: func(_ context.Context, m *sqllocktest.Memory, r strategies.Request) error {
			m.Lose(r.Name)

			return nil
		},
	})},
	{"names without case", "names/are compared byte for byte", changed(mutation{name: strings.ToLower})},
	{"names without trailing spaces", "names/are compared byte for byte", changed(mutation{
		name: func(name string) string { return strings.TrimRight(name, " ") },
	})},
	{"names cut off", "names/are compared byte for byte", changed(mutation{
		name: func(name string) string { return name[:min(len(name), 254)] },
	})},
	{"try waits", "try/does not wait for a guard", changed(mutation{acquire: waitForIt})},
	{"another owner each time", "ambiguity/acquire without an answer is asked for again", changed(mutation{
		owner: func(owner string) string { return owner + time.Now().String() },
	})},
	{"claims what it cannot", "min hold/keeps the name taken", changed(mutation{acquire: ignoreMinHold})},
	{
		"a forced release of whoever has it by now", "force release/not of a successor",
		func(m *sqllocktest.Memory) strategies.Strategy { return indiscriminate{m} },
	},
	{"batch grants one name twice", "batch/one name is granted once", func(m *sqllocktest.Memory) strategies.Strategy {
		return twiceGranting{m}
	}},
	{
		"tokens handed on that are not reserved", "hand-off/tokens that were reserved are never given again",
		changed(mutation{acquire: reserveOne}),
	},
	{"nobody is said to wait", "line/a release says whether others are in it", changed(mutation{
		release: func(ctx context.Context, g changedGrant) (bool, error) {
			_, err := g.release(ctx)

			return false, err
		},
	})},
	{"readers whose phase is not told", "line/a release says whether others are in it", changed(mutation{
		acquire: func(ctx context.Context, m *sqllocktest.Memory, r strategies.Request) (strategies.Grant, error) {
			grant, err := strategies.AcquireOne(ctx, m, r)
			grant.Phase = ""

			return grant, err
		},
	})},
	{"a newcomer overtakes", "line/nobody is granted what is kept for others", changed(mutation{acquire: pushIn})},
	{"all but the first are told that it is their turn", "line/in the order of arrival", func(m *sqllocktest.Memory) strategies.Strategy {
		return unordered{m}
	}},
	{"the dead stay in line", "line/the dead are passed", func(m *sqllocktest.Memory) strategies.Strategy {
		return immortal{m}
	}},
	{"a turn that nobody passes on", "line/who gives up passes the turn on", func(m *sqllocktest.Memory) strategies.Strategy {
		return staying{m}
	}},
	{"a wait that is forgotten with another", "line/of those who have gone is forgotten", changed(mutation{acquire: forgetLine})},
	{"several names by themselves", "several/in one statement", func(m *sqllocktest.Memory) strategies.Strategy { return alone{m} }},
	{
		"who waits for several names gives none back", "several/giving way to who holds one and wants another",
		func(m *sqllocktest.Memory) strategies.Strategy { return stubborn{m} },
	},
	{"slots that are one", "permits/as many as there are", changed(mutation{name: func(name string) string {
		name, _ = strategies.SplitSlot(name)

		return name
	}})},
	{"a permit beside those that are taken", "permits/the larger number bounds", changed(mutation{acquire: countOnly})},
	{
		"a newcomer overtakes those who wait for a permit", "permits/nobody is granted what is kept for others",
		func(m *sqllocktest.Memory) strategies.Strategy { return slotless{m} },
	},
	{
		"a permit that is free is told to nobody", "permits/several that are freed at once",
		func(m *sqllocktest.Memory) strategies.Strategy { return unfree{m} },
	},
	{
		"who looks is kept in no line", "waiters/of a process are kept and forgotten together",
		func(m *sqllocktest.Memory) strategies.Strategy { return unkept{m} },
	},
	{"a wait that nobody hears of", "waiting/a release is heard", func(m *sqllocktest.Memory) strategies.Strategy {
		return unheard{m}
	}},
	{"a reader beside a writer", "shared/readers together and one writer", sharing(mutation{acquire: readAnyway})},
	{"a writer beside readers", "shared/readers together and one writer", sharing(mutation{acquire: writeAnyway})},
	{"a reader's release ends the phase", "shared/a reader who leaves leaves the others", sharing(mutation{release: endPhase})},
	{"the last reader leaves the name taken", "shared/readers together and one writer", sharing(mutation{release: leaveTaken})},
	{"readers with tokens of their own", "shared/readers together and one writer", sharing(mutation{token: ownToken})},
	{"a phase with the token before", "shared/readers together and one writer", sharing(mutation{token: tokenBefore})},
	{"a reader overtakes a writer in line", "shared/a writer in line is not overtaken", sharing(mutation{acquire: readFirst})},
	{"more readers join beside a writer in line", "shared/a writer in line is not overtaken", sharing(mutation{join: joinAnyway})},
	{"a reader's guard pins nothing", "shared/a guard keeps the writer out", sharing(mutation{guard: checkOnly})},
	{"a reader's guard does not look", "shared/a guard after a writer", sharing(mutation{guard: guardNothing})},
	{"one of several readers is listed", "shared/are listed and taken away", func(m *sqllocktest.Memory) strategies.Strategy {
		return listingOne{m}
	}},
	{"anybody records a mark", "mark/is recorded by its owner only", func(m *sqllocktest.Memory) strategies.Strategy { return anybodys{m} }},
	{"marks are forgotten", "tick/its job is done once", func(m *sqllocktest.Memory) strategies.Strategy { return tickless{m} }},
	{"marks are forgotten", "mark/only grows", func(m *sqllocktest.Memory) strategies.Strategy { return tickless{m} }},
	{"a mark may shrink", "mark/only grows", func(m *sqllocktest.Memory) strategies.Strategy { return shrinking{m} }},
	{"a release in a transaction forgets the mark", "mark/is recorded with the commit of a release", changed(mutation{tick: true})},
	{"a request is for the next holder, too", "request/the holder is asked, and no successor", func(m *sqllocktest.Memory) strategies.Strategy {
		return clinging{m}
	}},
	{
		"a removal that forgets the token", "idle/the next token is larger though the clock went back",
		func(m *sqllocktest.Memory) strategies.Strategy { return floorless{m} },
	},
	{"a removal that asks for nothing", "idle/leaves who holds it", reckless},
	{"a removal that asks for nothing", "idle/leaves readers", reckless},
	{"a removal that asks for nothing", "idle/leaves a minimum hold", reckless},
	{"a removal that asks for nothing", "idle/leaves what is guarded", reckless},
	{"a removal that asks for nothing", "idle/leaves who waits", reckless},
	{"a removal that asks for nothing", "idle/leaves a tick", reckless},
	{"a removal that asks for nothing", "idle/leaves a loss that is to be told", reckless},
	{"a reader stays in line", "shared/leave the line as they come", sharing(mutation{acquire: stayInLine})},
	{"a dead reader is believed for ever", "shared/a dead reader", sharing(mutation{acquire: readForEver})},
	{"a reader's renewal does nothing", "shared/renewals", sharing(mutation{renew: renewNothing})},
	{"a reader's release hides a loss", "shared/a dead reader", sharing(mutation{release: leaveUnheard})},
}

// takeAnyway is an attempt that pushes the holder aside.
func takeAnyway(ctx context.Context, m *sqllocktest.Memory, r strategies.Request) (strategies.Grant, error) {
	grant, err := strategies.AcquireOne(ctx, m, r)
	if !errors.Is(err, sqllock.ErrNotAcquired) {
		return grant, err
	}

	m.Lose(r.Name)

	return strategies.AcquireOne(ctx, m, r)
}

// waitForIt is an attempt that waits until the name is free.
func waitForIt(ctx context.Context, m *sqllocktest.Memory, r strategies.Request) (strategies.Grant, error) {
	for tick := time.Tick(10 * time.Millisecond); ; {
		grant, err := strategies.AcquireOne(ctx, m, r)
		if !errors.Is(err, sqllock.ErrNotAcquired) {
			return grant, err
		}

		select {
		case <-tick:
		case <-ctx.Done():
			return grant, err
		}
	}
}

// runCase runs this test binary again for one case and one mutant: a test cannot expect that another fails.
func runCase(t *testing.T, name, mutant string) (output []byte, err error) {
	t.Helper()

	pattern := "^TestMutant$/^locks$"
	for _, part := range strings.Split(name, "/") {
		pattern += "/^" + strings.ReplaceAll(part, " ", "_") + "$"
	}

	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+pattern, "-test.v", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), mutantVariable+"="+mutant)

	return cmd.CombinedOutput()
}

// TestMutants checks that each mutant is caught.
func TestMutants(t *testing.T) {
	t.Parallel()

	for _, m := range mutants {
		t.Run(m.name+"/"+m.caught, func(t *testing.T) {
			t.Parallel()

			output, err := runCase(t, m.caught, m.name)
			failed := "--- FAIL: TestMutant/locks/" + strings.ReplaceAll(m.caught, " ", "_") + " "

			switch {
			case err == nil:
				t.Errorf("the case %q passes for the mutant %q, want that it fails:\n%s", m.caught, m.name, output)
			case !strings.Contains(string(output), failed) || strings.Contains(string(output), "panic:"):
				t.Errorf("the run for the mutant %q failed otherwise than by the case %q: %v\n%s", m.name, m.caught, err, output)
			}
		})
	}
}

// TestSound checks that a strategy is not blamed for a row that is locked for a moment, by a session that broke, say.
func TestSound(t *testing.T) {
	t.Parallel()

	const name = "batch/renewal runs from now"

	if output, err := runCase(t, name, sound); err != nil || !strings.Contains(string(output), "--- PASS: TestMutant/locks/batch/renewal_runs_from_now ") {
		t.Errorf("the case %q failed for a sound strategy: %v\n%s", name, err, output)
	}
}

// sound is in the place of a mutant's name.
const sound = "a row is locked for a moment"

const mutantVariable = "SQLLOCK_TEST_MUTANT"

// TestMutant runs the suite over the mutant that TestMutants names.
func TestMutant(t *testing.T) {
	t.Parallel()

	name := os.Getenv(mutantVariable)
	if name == "" {
		t.Skip("TestMutants runs it")
	}

	if name == sound {
		sqllocktest.Run(t, memoryHarness(func(m *sqllocktest.Memory) strategies.Strategy { return &lockedForAMoment{Memory: m} }))

		return
	}

	for _, m := range mutants {
		if m.name == name {
			sqllocktest.Run(t, memoryHarness(m.wrap))

			return
		}
	}

	t.Fatalf("no mutant is called %q", name)
}
