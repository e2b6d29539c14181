//go:build unix

// Demo lets three processes share one lock, kills one of them while it holds the lock, and looks that another takes
// over when its lease has ended. Each is a "sqllock run"; the command is named by SQLLOCK, else found in PATH. They share
// a temporary SQLite file, or the database of DATABASE_URL, where the tables of sqllock stay.
//
//	make demo
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

const (
	workers = 3
	lease   = 2 * time.Second
	// slack is for a machine that has more to do.
	slack = 3 * time.Second
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "hold" {
		hold(os.Args[2])

		return
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv("SQLLOCK"), os.Stdout)

	stop()

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// hold is the command that runs under the lock. It says so before it begins and when it ends: all write to one pipe, so
// the order of the lines is that of what happened.
func hold(worker string) {
	fmt.Println(worker, "acquired", os.Getenv("SQLLOCK_TOKEN"))
	<-time.After(lease / 8) // the work
	fmt.Println(worker, "released", os.Getenv("SQLLOCK_TOKEN"))
}

func run(ctx context.Context, command string, out io.Writer) error {
	if command == "" {
		command = "sqllock"
	}

	folder, err := os.MkdirTemp("", "sqllock-demo-")
	if err != nil {
		return err
	}

	defer func() { _ = os.RemoveAll(folder) }()

	environment := os.Environ()
	if os.Getenv("DATABASE_URL") == "" {
		environment = append(environment, "DATABASE_URL=sqlite:"+filepath.Join(folder, "locks.db"))
	}

	migrate := exec.CommandContext(ctx, command, "migrate", "up") //nolint:gosec // the command that its user names
	migrate.Env, migrate.Stdout, migrate.Stderr = environment, out, os.Stderr

	if err := migrate.Run(); err != nil {
		return fmt.Errorf("%s migrate up: %w", command, err)
	}

	self, err := os.Executable()
	if err != nil {
		return err
	}

	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()

	d := demo{out: out, begun: time.Now(), running: map[int]*os.Process{}}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	// A worker runs the command under the lock again and again, until the demo ends or it is killed.
	for number := 1; number <= workers; number++ {
		worker := exec.CommandContext(ctx, "sh", "-c", //nolint:gosec // likewise
			`while "$0" run --name "$1" --lease "$2" -- "$3" hold "$4"; do sleep 0.05; done`,
			command, fmt.Sprintf("demo/%d", os.Getpid()), lease.String(), self, fmt.Sprint(number))
		worker.Env, worker.Stdout, worker.Stderr = environment, write, os.Stderr
		worker.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		worker.Cancel = func() error { return syscall.Kill(-worker.Process.Pid, syscall.SIGKILL) }

		if err := worker.Start(); err != nil {
			return err
		}

		defer func() { _ = worker.Wait() }()

		d.running[number] = worker.Process
	}

	_ = write.Close()

	err = d.follow(ctx, read)

	cancel()

	return err
}

// demo is what was seen.
type demo struct {
	out     io.Writer
	begun   time.Time
	running map[int]*os.Process

	holder, killed, handed int
	token                  int64
	killedAt, tookOver     time.Time
}

// follow reads what workers say, and kills one of them that holds the lock.
func (d *demo) follow(ctx context.Context, said io.Reader) error {
	for lines := bufio.NewScanner(said); lines.Scan() && ctx.Err() == nil; {
		var (
			worker int
			what   string
			token  int64
		)

		if _, err := fmt.Sscan(lines.Text(), &worker, &what, &token); err != nil {
			return fmt.Errorf("a worker said %q: %w", lines.Text(), err)
		}

		if what == "acquired" && d.killed != 0 && d.tookOver.IsZero() {
			what, d.tookOver = "took over", time.Now()
		}

		d.tell(worker, what, fmt.Sprintf("token %d", token))

		switch {
		case what == "released":
			d.holder = 0

			continue
		case d.holder != 0:
			return fmt.Errorf("workers %d and %d both had the lock", d.holder, worker)
		case token <= d.token:
			return fmt.Errorf("token %d came after token %d", token, d.token)
		}

		d.holder, d.token, d.handed = worker, token, d.handed+1

		switch {
		case d.killed == 0 && time.Since(d.begun) > 2*lease:
			if err := d.kill(worker); err != nil {
				return err
			}
		case d.killed != 0 && time.Since(d.tookOver) > lease:
			return d.judge()
		}
	}

	return errors.New("the demo was ended")
}

// kill kills a worker with all its processes, as a crash of its machine would.
func (d *demo) kill(worker int) error {
	if err := syscall.Kill(-d.running[worker].Pid, syscall.SIGKILL); err != nil {
		return err
	}

	d.killed, d.killedAt, d.holder = worker, time.Now(), 0
	d.tell(worker, "SIGKILL", "while it holds the lock")

	return nil
}

func (d *demo) tell(worker int, what, more string) {
	_, _ = fmt.Fprintf(d.out, "  %7.3fs  worker %d  %-9s %s\n", time.Since(d.begun).Seconds(), worker, what, more)
}

// judge says what came out.
func (d *demo) judge() error {
	took := d.tookOver.Sub(d.killedAt).Round(time.Millisecond)

	_, _ = fmt.Fprintf(d.out, "\n  never two at once, in %d times that the lock was held\n  every token was larger than the one before\n"+
		"  another worker took over %s after worker %d was killed (lease %s)\n", d.handed, took, d.killed, lease)

	if took > lease+slack {
		return fmt.Errorf("nobody took over within %s", lease+slack)
	}

	return nil
}
