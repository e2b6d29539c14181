// Package servers brings up the database servers that a test run needs, and takes them down again.
//
// For each of postgres, mysql and mariadb it tries, in this order:
//
//  1. environment: the DSN in SQLLOCK_TEST_POSTGRES, SQLLOCK_TEST_MYSQL, SQLLOCK_TEST_MARIADB;
//  2. container: the image postgres:17, mysql:9.7, mariadb:11.8 (SQLLOCK_TEST_POSTGRES_IMAGE and so on
//     name others), if a Docker engine answers and has it or can pull it. SQLLOCK_TEST_NEAR=1 uses the
//     container's own address where this machine reaches it, and not a port that the engine publishes
//     through a proxy of its own, which takes longer than a small statement does. It is not for tests that end
//     servers: the next container gets the address of one that has ended;
//  3. binary: server programs found on this machine, run in a temporary folder;
//  4. apt: those programs from the distribution's packages, if we are root on Debian or one of its kin.
//
// TiDB is had in the first way alone, and only where SQLLOCK_TEST_DATABASES names it.
//
// What is started here does not wait for the disk as it commits, unless SQLLOCK_TEST_DURABLE is set: no test takes the
// machine's power away.
//
// What does not work is remembered, and the next way is tried. A database that cannot be had in any of
// them is an error, not a skipped test: SQLLOCK_TEST_DATABASES says which databases a run leaves out.
//
// # What is left behind
//
// Nothing, if [Set.Close] was called. A run that is killed (SIGKILL) leaves containers and temporary folders,
// and outside Linux server processes too. All of them carry the number and the start time of the process
// that made them; the next run removes those whose maker is gone. Packages stay installed.
package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// startLimit bounds one try of one way: pulling an image or installing packages takes longest.
const startLimit = 5 * time.Minute

// Names returns the databases of this run: those in SQLLOCK_TEST_DATABASES, separated by commas, or all.
func Names() []string {
	list := os.Getenv("SQLLOCK_TEST_DATABASES")
	if list == "" {
		return []string{"postgres", "mysql", "mariadb", "sqlite"}
	}

	var names []string

	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}

	return names
}

// Variable returns the name of the environment variable that holds a database's DSN.
func Variable(name string) string { return engine{name: name}.dsnVariable() }

// Set is the servers of one test run.
type Set struct {
	names    []string
	servers  map[string]*server
	password string // of those that were started here
}

// server is one that answers.
type server struct {
	from    string // which way it was had, for the log
	version string
	stop    func(ctx context.Context) error // nil for a server that is not ours
	power   power                           // nil for a server that is not ours

	neighbour string // where it is for another one that was started in the same way

	mutex sync.Mutex
	dsn   string // changes with a restart
}

// way is one of the ways to get a server.
type way struct {
	name string
	get  func(ctx context.Context, e engine) (*server, error)
}

// absentError says that a way does not exist here. It is no fault, and mentioned only if nothing else works.
type absentError string

func (e absentError) Error() string { return string(e) }

// Start brings up the servers of the named databases, all at the same time, and returns when each lets
// clients in. It writes a line per database to log. When one cannot be had, the others are taken down
// again and the error has a line for each that is missing, which says how to provide it. When ctx ends,
// Start gives up; it may take some seconds more to leave nothing behind.
func Start(ctx context.Context, names []string, log io.Writer) (*Set, error) {
	return startAny(ctx, names, log, way{"environment", fromEnvironment})
}

// StartOwn is [Start] without the servers that the environment names: those that it brings up can be
// crashed, and are nobody else's.
func StartOwn(ctx context.Context, names []string, log io.Writer) (*Set, error) {
	return startAny(ctx, names, log)
}

func startAny(ctx context.Context, names []string, log io.Writer, before ...way) (*Set, error) {
	maker, err := identify(os.Getpid())
	if err != nil {
		return nil, err
	}

	password := rand.Text()
	containers := newContainers(maker, password)
	folders := newFolders(maker, password)
	packages := newPackages(folders)

	set, err := start(ctx, names, log, append(before,
		way{"container", containers.get}, way{"binary", folders.get}, way{"apt", packages.get}))
	if err != nil {
		return nil, err
	}

	set.password = password

	if found, ok := set.servers["postgres"]; ok && found.stop != nil {
		if err := quickLogins(ctx, found.dsn, password); err != nil {
			return nil, errors.Join(err, set.Close())
		}
	}

	return set, nil
}

func start(ctx context.Context, names []string, log io.Writer, ways []way) (*Set, error) {
	set := &Set{names: names, servers: map[string]*server{}}
	known := engines()

	for _, name := range names {
		if _, ok := known[name]; !ok && name != "sqlite" {
			return nil, fmt.Errorf("SQLLOCK_TEST_DATABASES: there is no database %q", name)
		}
	}

	var (
		running sync.WaitGroup
		mutex   sync.Mutex
		missing []error
	)

	for _, name := range names {
		if name == "sqlite" {
			mutex.Lock()
			fmt.Fprintf(log, "%-9s in the test's own process\n", name)
			mutex.Unlock()

			continue
		}

		running.Go(func() {
			began := time.Now()
			found, notes, err := first(ctx, known[name], known[name].among(ways))

			mutex.Lock()
			defer mutex.Unlock()

			for _, note := range notes {
				fmt.Fprintf(log, "%-9s %s\n", name, note)
			}

			if err != nil {
				missing = append(missing, err)

				return
			}

			set.servers[name] = found
			fmt.Fprintf(log, "%-9s %-27s %-18s ready in %.1fs\n", name, found.from, found.version, time.Since(began).Seconds())
		})
	}

	running.Wait()

	if len(missing) > 0 {
		return nil, errors.Join(append(missing, set.Close())...)
	}

	return set, nil
}

// among are those of the ways in which a server can be had: one that is not started here is not crashed, either.
func (e engine) among(ways []way) []way {
	if e.image == "" {
		return []way{{"environment", fromEnvironment}}
	}

	return ways
}

// first tries the ways in order. The notes tell of those that exist but failed.
func first(ctx context.Context, e engine, ways []way) (found *server, notes []string, err error) {
	var reasons []string

	for _, way := range ways {
		found, err := try(ctx, e, way)
		if err == nil {
			return found, notes, nil
		}

		if ctx.Err() != nil {
			return nil, nil, fmt.Errorf("%s: given up: %w", e.name, context.Cause(ctx))
		}

		reason := oneLine(err.Error())
		reasons = append(reasons, way.name+": "+reason)

		var absent absentError
		if !errors.As(err, &absent) {
			notes = append(notes, way.name+" failed: "+reason)
		}
	}

	if e.image == "" {
		return nil, notes, fmt.Errorf("%s: no server; set %s to a DSN (%s), or leave it out with SQLLOCK_TEST_DATABASES (tried %s)",
			e.name, e.dsnVariable(), e.example, strings.Join(reasons, "; "))
	}

	return nil, notes, fmt.Errorf("%s: no server; set %s to a DSN (%s), or give Docker the image %s, or install %s, "+
		"or leave it out with SQLLOCK_TEST_DATABASES (tried %s)",
		e.name, e.dsnVariable(), e.example, e.image, e.product, strings.Join(reasons, "; "))
}

func try(ctx context.Context, e engine, way way) (*server, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()

	return way.get(ctx, e)
}

// oneLine shortens text, such as the end of a server's log, to what fits a message.
func oneLine(text string) string {
	const limit = 400

	text = strings.Join(strings.Fields(text), " ")
	if len(text) > limit {
		return text[:limit] + "…"
	}

	return text
}

// Names returns the databases of the set, as they were given to [Start].
func (s *Set) Names() []string { return slices.Clone(s.names) }

// DSN returns the data source name of a database's server: a URL for postgres, the form of
// github.com/go-sql-driver/mysql for mysql and mariadb, "" for sqlite and for a database not in the set.
func (s *Set) DSN(name string) string {
	found, ok := s.servers[name]
	if !ok {
		return ""
	}

	found.mutex.Lock()
	defer found.mutex.Unlock()

	return found.dsn
}

// Environment returns the settings that let another process use the set: NAME=value, for [os/exec.Cmd].
func (s *Set) Environment() []string {
	settings := []string{"SQLLOCK_TEST_DATABASES=" + strings.Join(s.names, ",")}

	for name := range s.servers {
		settings = append(settings, Variable(name)+"="+s.DSN(name))
	}

	slices.Sort(settings)

	return settings
}

// Close takes down the servers that [Start] started and removes their data. It does not depend on any
// context, so that an interrupted run cleans up too, and takes at most about half a minute.
func (s *Set) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	var (
		running sync.WaitGroup
		mutex   sync.Mutex
		faults  []error
	)

	for name, found := range s.servers {
		if found.stop == nil {
			continue
		}

		running.Go(func() {
			if err := found.stop(ctx); err != nil {
				mutex.Lock()
				defer mutex.Unlock()

				faults = append(faults, fmt.Errorf("stop %s: %w", name, err))
			}
		})
	}

	running.Wait()

	return errors.Join(faults...)
}
