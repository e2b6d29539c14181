package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/bench/internal/report"
	"github.com/sqllock/sqllock/bench/torture/internal/judge"
	"github.com/sqllock/sqllock/bench/torture/internal/locks"
	"github.com/sqllock/sqllock/bench/torture/internal/page"
	"github.com/sqllock/sqllock/bench/torture/internal/servers"
	"github.com/sqllock/sqllock/bench/torture/internal/sinks"
	"github.com/sqllock/sqllock/bench/torture/internal/trial"
)

// runner puts locks through faults, some locks at a time. Each lock has servers of its own.
type runner struct {
	locks          []locks.Lock
	faults         []judge.Fault
	repeats, lanes int
	lease          time.Duration
	events         string

	setting trial.Setting
	number  atomic.Int64

	mutex    sync.Mutex
	cells    []judge.Cell
	versions map[string]string // of the servers
}

// record runs all, and writes what came of it to the file.
func (r *runner) record(ctx context.Context, file string) error {
	began := time.Now()

	if err := r.run(ctx); err != nil {
		return err
	}

	found := page.Record{
		Began: began, Took: time.Since(began), Machine: report.Machine(), Lease: r.lease, Repeats: r.repeats, Cells: r.cells,
	}

	for _, name := range slices.Sorted(maps.Keys(r.versions)) {
		found.Versions = append(found.Versions, page.Version{Name: name, Version: r.versions[name]})
	}

	found.Modules = modules()
	found.Locks = rows(r.locks, found.Modules)

	return page.Write(file, found)
}

// rows are the locks as the page tells of them.
func rows(all []locks.Lock, modules map[string]string) (rows []page.Row) {
	for _, l := range all {
		rows = append(rows, page.Row{
			Name: l.Name, Server: l.Server, Ours: l.Ours, Settings: l.Settings, Module: l.Module, Version: modules[l.Module],
			Promise: l.Promise, Source: l.Source, Token: l.Token, Smallest: l.Smallest,
		})
	}

	return rows
}

// modules are the versions of the modules that this program is built of.
func modules() map[string]string {
	all := make(map[string]string)

	build, ok := debug.ReadBuildInfo()
	if !ok {
		return all
	}

	for _, module := range build.Deps {
		for _, l := range locks.All() {
			if module.Path == l.Module {
				all[module.Path] = module.Version
			}
		}
	}

	return all
}

func (r *runner) run(ctx context.Context) (err error) {
	program, err := os.Executable()
	if err != nil {
		return err
	}

	rows, err := servers.Start(ctx, "postgres", false)
	if err != nil {
		return fmt.Errorf("the database of the protected rows: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()

	r.setting = trial.Setting{Program: program, Lease: r.lease, Rows: rows.DSN(0, rows.Endpoints()[0]), Events: r.events}

	if err := sinks.PrepareRows(ctx, r.setting.Rows); err != nil {
		return err
	}

	next := make(chan locks.Lock)

	var group sync.WaitGroup

	for range r.lanes {
		group.Go(func() {
			for lock := range next {
				r.torture(ctx, lock)
			}
		})
	}

	for _, lock := range r.locks {
		select {
		case next <- lock:
		case <-ctx.Done():
		}
	}

	close(next)
	group.Wait()

	return context.Cause(ctx)
}

// torture puts a lock through all faults.
func (r *runner) torture(ctx context.Context, lock locks.Lock) {
	server, err := start(ctx, lock, false)
	if err != nil {
		for _, fault := range r.faults {
			r.note(judge.Cell{Lock: lock.ID(), Fault: fault}.Fail(err))
		}

		return
	}
	defer server.Close()

	r.runs(lock.Server, server.Version())

	broken := make(map[judge.Fault]bool)

	for round := 0; ctx.Err() == nil; round++ {
		due := slices.DeleteFunc(slices.Clone(r.faults), func(f judge.Fault) bool {
			return round >= f.Trials(r.repeats) || round >= r.repeats && broken[f]
		})
		if len(due) == 0 {
			return
		}

		for _, fault := range due {
			cell := r.trial(ctx, lock, fault, server, round)
			broken[fault] = broken[fault] || cell.Kind == judge.Broken
		}
	}
}

// trial notes what came of one, and returns it.
func (r *runner) trial(ctx context.Context, lock locks.Lock, fault judge.Fault, server servers.Server, round int) judge.Cell {
	var cell judge.Cell

	switch {
	case fault == judge.Unfenced || ctx.Err() != nil: // the one comes with another
		return cell
	case fault == judge.FailOver:
		cell = r.failOver(ctx, lock, round)
	default:
		cell = r.setting.Run(ctx, lock, fault, server, int(r.number.Add(1)), round)
	}

	r.note(cell)

	if fault == judge.Stopped {
		bare := cell
		bare.Fault = judge.Unfenced
		r.note(bare.Bare(r.lease))
	}

	return cell
}

// failOver has a server of its own, which is of no use afterwards.
func (r *runner) failOver(ctx context.Context, lock locks.Lock, round int) judge.Cell {
	cell := judge.Cell{Lock: lock.ID(), Fault: judge.FailOver}

	server, err := start(ctx, lock, true)

	switch {
	case errors.Is(err, servers.ErrNone):
		return cell.Missing(err)
	case err != nil:
		return cell.Fail(err)
	}
	defer server.Close()

	return r.setting.Run(ctx, lock, judge.FailOver, server, int(r.number.Add(1)), round)
}

func start(ctx context.Context, lock locks.Lock, failOver bool) (servers.Server, error) {
	server, err := servers.Start(ctx, lock.Server, failOver)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", lock.Server, err)
	}

	if lock.Prepare == nil {
		return server, nil
	}

	config := locks.Config{Lease: time.Minute, Pool: 2}
	for i, endpoint := range server.Endpoints() {
		config.Servers = append(config.Servers, server.DSN(i, endpoint))
	}

	if err := lock.Prepare(ctx, config); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare: %w", err), server.Close())
	}

	return server, nil
}

// runs notes what runs.
func (r *runner) runs(server, version string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()

	if r.versions == nil {
		r.versions = make(map[string]string)
	}

	r.versions[server] = version
}

func (r *runner) note(cell judge.Cell) {
	r.mutex.Lock()
	defer r.mutex.Unlock()

	r.cells = append(r.cells, cell)
	log.Printf("%-44s %-9s %-6s %s", cell.Lock, cell.Fault, cell.Kind, strings.Join(cell.Why, "; "))
}
