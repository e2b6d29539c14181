package kuberneteslock_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/leaderelection"

	kuberneteslock "github.com/sqllock/sqllock/adapters/kubernetes"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/migrations"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/cas"
)

// A controller of which one process leads.
func Example() {
	folder, err := os.MkdirTemp("", "kuberneteslock")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)

	db, err := sql.Open("sqlite", "file:"+filepath.Join(folder, "locks.db")+
		"?_txlock=immediate&_pragma=busy_timeout(2000)&_pragma=journal_mode(WAL)")
	if err != nil {
		log.Print(err)

		return
	}
	defer db.Close()

	if err := lead(context.Background(), db); err != nil {
		log.Print(err)
	}
	// Output:
	// leader: pod-7d9f
	// the lock has a token: true
	// stopped
}

func lead(ctx context.Context, db *sql.DB) error {
	if err := tables(ctx, db); err != nil {
		return err
	}

	locker, err := sqllock.New(cas.New(sqlite.New(db)))
	if err != nil {
		return err
	}
	defer locker.Close(ctx)

	lock := kuberneteslock.New(locker, "controllers/invoices", "pod-7d9f")
	worked := make(chan struct{})

	ctx, cancel := kuberneteslock.WithCancel(ctx) // ends if the lock is lost
	defer cancel()

	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     2 * time.Second,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				fmt.Println("leader:", lock.Identity())
				fmt.Println("the lock has a token:", lock.Held().Token() > 0)
				close(worked)
				cancel() // the work is done
			},
			OnStoppedLeading: func() {
				<-worked
				fmt.Println("stopped")
			},
		},
	})
	if err != nil {
		return err
	}

	elector.Run(ctx)

	return nil
}

// tables makes the tables of sqllock for this example. A service leaves that to "sqllock migrate up".
func tables(ctx context.Context, db *sql.DB) error {
	text, err := migrations.FS.ReadFile("sqlite/00001_create_locks.sql")
	if err != nil {
		return err
	}

	create, _, _ := strings.Cut(string(text), "-- +goose Down")
	_, err = db.ExecContext(ctx, create)

	return err
}
