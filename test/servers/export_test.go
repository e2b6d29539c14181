package servers

import (
	"context"
	"errors"
	"io"
	"os"
)

// Absent is the error of a way that does not exist.
func Absent(reason string) error { return absentError(reason) }

// Fake is a way for tests: it gives each database the DSN or the error that Answer returns.
type Fake struct {
	Name    string
	Answer  func(database string) (dsn string, err error)
	Stopped func(database string)
}

// StartWith is Start with other ways.
func StartWith(ctx context.Context, names []string, log io.Writer, fakes ...Fake) (*Set, error) {
	var ways []way

	for _, fake := range fakes {
		ways = append(ways, way{fake.Name, func(_ context.Context, e engine) (*server, error) {
			dsn, err := fake.Answer(e.name)
			if err != nil {
				return nil, err
			}

			stop := func(context.Context) error {
				fake.Stopped(e.name)

				return nil
			}

			return &server{from: fake.Name, dsn: dsn, version: "1.0", stop: stop}, nil
		}})
	}

	return start(ctx, names, log, ways)
}

// StartOnThisMachine is StartOwn with the programs of this machine and nothing else.
func StartOnThisMachine(ctx context.Context, names []string, log io.Writer) (*Set, error) {
	maker, err := identify(os.Getpid())
	if err != nil {
		return nil, err
	}

	const password = "of-a-test"

	set, err := start(ctx, names, log, []way{{"binary", newFolders(maker, password).get}})
	if err == nil {
		set.password = password
	}

	return set, err
}

// Installed says whether the programs of a database's server are on this machine.
func Installed(ctx context.Context, name string) bool {
	_, err := engines()[name].locate(ctx)

	return err == nil
}

// FakePower starts a server as the functions say.
type FakePower struct {
	power // nothing else is asked of it

	Start func() (string, error)
	Ended func() error
}

func (f FakePower) start(context.Context) (string, error) { return f.Start() }
func (f FakePower) ended(context.Context) error           { return f.Ended() }

// StartAgain is how a server is started that was crashed.
func StartAgain(ctx context.Context, p FakePower, ready func(string) error) error {
	return startAgain(ctx, p, ready)
}

// NormalizeMySQL is what is done to a DSN from the environment.
func NormalizeMySQL(dsn string) (string, error) { return normalizeMySQL(dsn) }

// ParseVersion reads a server's answer to SELECT version().
func ParseVersion(text string) (product, version string) { return parseVersion(text) }

// OwnIdentity returns the identity of this process, whether that says it is gone, and whether an identity
// of the same number but another start says so.
func OwnIdentity() (text string, gone, otherGone bool, err error) {
	own, err := identify(os.Getpid())
	if err != nil {
		return "", false, false, err
	}

	read, err := parseIdentity(own.String())
	if err == nil && read != own {
		err = errors.New("parseIdentity does not undo String")
	}

	other := own
	other.started += "0"

	return own.String(), own.gone(), other.gone(), err
}

// GoneElsewhere tells whether a process of another machine is taken for gone.
func GoneElsewhere() bool {
	return identity{host: "another machine", pid: 1 << 30, started: "1"}.gone()
}
