//go:build unix

package stress

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/test/frozen"
	"github.com/sqllock/sqllock/test/schema"
)

// Frozen names the revision that is recorded as the one in use.
const Frozen = "frozen"

// Revision is another revision of this repository: the program of its workers, and its migrations. Nil is ours.
type Revision struct {
	commit string
	folder string // of its files and its program
}

// BuildRevision takes a revision out of the history of the clone in which this process runs, and builds it.
func BuildRevision(ctx context.Context, name string) (*Revision, error) {
	if name == Frozen {
		name = frozen.Commit
	}

	folder, err := os.MkdirTemp("", "sqllock-revision-")
	if err != nil {
		return nil, err
	}

	r := &Revision{folder: folder}

	r.commit, err = frozen.Extract(ctx, name, r.files())
	if err == nil {
		err = r.build(ctx)
	}

	if err == nil {
		err = speaks(ctx, r.program())
	}

	if err != nil {
		return nil, errors.Join(err, r.Remove())
	}

	return r, nil
}

// Remove removes what BuildRevision made.
func (r *Revision) Remove() error { return os.RemoveAll(r.folder) }

func (r *Revision) String() string { return r.commit[:12] }

func (r *Revision) files() string { return filepath.Join(r.folder, "files") }

func (r *Revision) program() string { return filepath.Join(r.folder, "stress") }

// build builds its program with the modules that it asks for, whatever workspace the environment or a folder above has.
func (r *Revision) build(ctx context.Context) error {
	_, err := frozen.Output(ctx, filepath.Join(r.files(), "test"), []string{"GOWORK=off"}, "go", "build", "-buildvcs=false", "-o", r.program(), "./cmd/stress")

	return err
}

// speaks returns an error unless the program's workers have our protocol.
func speaks(ctx context.Context, program string) error {
	theirs, err := frozen.Output(ctx, "", []string{workerVariable + "=" + askProtocol}, program)
	if err != nil {
		return fmt.Errorf("its workers do not tell their protocol: %w", err)
	}

	if theirs != strconv.Itoa(protocol) {
		return fmt.Errorf("its workers have protocol %q, and this run has %d", theirs, protocol)
	}

	return nil
}

// worker is the program that its workers run.
func (r *Revision) worker() (string, error) {
	if r == nil {
		return os.Executable()
	}

	return r.program(), nil
}

// migrate makes its tables, or brings older ones to what its are.
func (r *Revision) migrate(ctx context.Context, db *sql.DB, dialect databases.Dialect) error {
	if r == nil {
		return schema.Up(ctx, db, dialect)
	}

	folder := string(dialect)
	if dialect == databases.TiDB {
		folder = string(databases.MySQL)
	}

	return schema.UpFrom(ctx, db, dialect, os.DirFS(filepath.Join(r.files(), "migrations", folder)))
}

// flags are those that run beside it once more.
func (r *Revision) flags() string {
	if r == nil {
		return ""
	}

	return " -locks=false -beside " + r.commit
}
