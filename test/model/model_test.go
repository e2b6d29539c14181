package model_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/test/model"
)

// TestProtocol checks that the protocol keeps its promises whatever happens.
func TestProtocol(t *testing.T) {
	t.Parallel()

	for _, scope := range []model.Scope{
		model.Late, model.Again, model.Extended, model.Guarded, model.Reaped, model.Lossless,
		model.Recovered, model.Twice, model.Longer,
	} {
		t.Run(scope.Name, func(t *testing.T) {
			t.Parallel()

			r := model.Protocol{Scope: scope}.Search()
			t.Logf("%d states, up to %d steps from the start", r.States, r.Depth)

			if r.Broken != "" {
				t.Errorf("%s:\n%s", r.Broken, strings.Join(r.Trace, "\n"))
			}
		})
	}
}

// TestFaults checks that the search finds every fault, by the promise that it
// breaks.
func TestFaults(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		fault  model.Fault
		name   string
		scope  model.Scope
		broken string
	}{
		{model.ReleaseWithoutOwner, "release without owner", model.Late, model.OwnGrantOnly},
		{model.RenewalWithoutOwner, "renewal without owner", model.Late, model.OwnGrantOnly},
		{model.RenewalShortens, "renewal shortens", model.Extended, model.NotTold},
		{model.RetryLeavesLease, "retry leaves the lease", model.Late, model.NotTold},
		{model.RetryDrawsToken, "retry draws a token", model.Late, model.TokenKept},
		{model.ExpiryByClientsClock, "expiry by the client's clock", model.Late, model.NotTold},
		{model.LeaseWithoutEnd, "lease without end", model.Late, model.FreeInALease},
		{model.TokenDrawnBefore, "token drawn before", model.Late, model.TokensGrow},
		{model.TokenWithoutClock, "token without clock", model.Reaped, model.TokensGrow},
		{model.RemovalWithoutFloor, "removal without floor", model.Reaped, model.TokensGrow},
		{model.GuardWithoutRowLock, "guard without row lock", model.Guarded, model.NoStaleCommit},
		{model.GuardWithoutCheck, "guard without check", model.Guarded, model.NoStaleCommit},
		{model.ReaperTrustsItsList, "reaper trusts its list", model.Reaped, model.NotTold},
		{model.TrustFromAnswer, "trust from the answer", model.Late, model.NotTold},
		{model.NoClockMargin, "no clock margin", model.Late, model.NotTold},
		{model.MonotonicClockAlone, "monotonic clock alone", model.Reaped, model.NotTold},
		{model.UnknownIsRenewed, "unknown is renewed", model.Late, model.NotTold},
		{model.WindowUnwatched, "window unwatched", model.Late, model.NotTold},
		{model.LossTakenBack, "loss taken back", model.Late, model.LossIsFinal},
		{model.LateConfirmation, "late confirmation", model.Reaped, model.TokenKept},
		{model.ReleaseBeforeTelling, "release before telling", model.Late, model.NotTold},
		{model.NoPause, "no pause", model.Recovered, model.NotTold},
		{model.PauseOfOneLease, "pause of one lease", model.Longer, model.NotTold},
		{model.PauseByClientsClock, "pause by the client's clock", model.Recovered, model.NotTold},
		{model.PauseOnce, "pause once", model.Twice, model.NotTold},
		{model.AskedAgainInPause, "asked again in the pause", model.Recovered, model.OneAtATime},
		{model.RenewedInPause, "renewed in the pause", model.Recovered, model.TokenKept},
		{model.RaisedAfterGrant, "raised after the grant", model.Longer, model.NotTold},
		{model.RaiseMayBeLost, "raise may be lost", model.Longer, model.NotTold},
		{model.LoweredEarly, "lowered early", model.Longer, model.NotTold},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			r := model.Protocol{Fault: c.fault, Scope: c.scope}.Search()
			t.Logf("%d states, then %s:\n%s", r.States, r.Broken, strings.Join(r.Trace, "\n"))

			if r.Broken != c.broken {
				t.Errorf("found %q, want %q", r.Broken, c.broken)
			}
		})
	}
}

// TestMirrors checks that what the comments say the model mirrors is in the code.
func TestMirrors(t *testing.T) {
	t.Parallel()

	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}

	line, err := filepath.Glob("line/*.go")
	if err != nil {
		t.Fatal(err)
	}

	sources = append(sources, line...)

	count := 0

	for _, source := range sources {
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}

		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Doc == nil {
				continue
			}

			_, mirrors, _ := strings.Cut(f.Doc.Text(), "\nMirrors ")
			for _, mirror := range strings.FieldsFunc(strings.TrimRight(mirrors, ".\n"), func(r rune) bool { return r == ',' }) {
				path, symbol, _ := strings.Cut(strings.TrimSpace(mirror), " ")
				count++

				if err := declares(filepath.Join("..", "..", filepath.FromSlash(path)), symbol); err != nil {
					t.Errorf("%s mirrors %s %s: %v", f.Name.Name, path, symbol, err)
				}
			}
		}
	}

	if count < 70 {
		t.Errorf("found %d mirrors, want 70 at least", count)
	}
}

// declares looks for a function, a method as "Type.method", or a statement by its
// name.
func declares(path, symbol string) error {
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}

	receiver, name, _ := strings.Cut(symbol, ".")
	pattern := `(?m)^func \(\w+ \*?` + receiver + `\) ` + name + `\b|^-- name: ` + regexp.QuoteMeta(symbol) + `$`

	if name == "" {
		pattern = `(?m)^func ` + symbol + `\b`
	}

	if !regexp.MustCompile(pattern).Match(source) {
		return fmt.Errorf("%s has no %s", path, symbol)
	}

	return nil
}
