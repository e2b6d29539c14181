package prometheus

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sqllock/sqllock/sqllock"
)

// DefaultTimeout is how long a scrape waits for the database if [NewDatabase] is not told.
const DefaultTimeout = 5 * time.Second

// Database is a collector that asks the database at each scrape who holds and who waits for locks, in whatever process.
// Every process that has one reports the same, so take the maximum over instances and not the sum. One process that has it
// is enough. It is safe for concurrent use.
//
// A name that is waited for and held by nobody for long is a fault.
type Database struct {
	settings settings
	locker   *sqllock.Locker
	timeout  time.Duration

	up, recovery, holders, waiters, oldest, unheld *prometheus.Desc

	asking chan struct{}        // has an element while the database is asked
	since  map[string]time.Time // since when each name was waited for without a holder; of who asks
}

// NewDatabase returns a collector that asks through the locker: with three short queries at each scrape, which take
// timeout together at most, or [DefaultTimeout] if that is not positive. The scrape's own timeout should be longer.
func NewDatabase(locker *sqllock.Locker, timeout time.Duration, options ...Option) *Database {
	s := newSettings(options)

	if timeout <= 0 {
		timeout = DefaultTimeout
	}

	gauge := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("sqllock_database_"+name, help, s.labels(), nil)
	}

	return &Database{
		settings: s, locker: locker, timeout: timeout, asking: make(chan struct{}, 1),

		up: prometheus.NewDesc("sqllock_database_up",
			"1 if the database said in time who holds and waits for locks, else 0, and the other metrics of it are missing.", nil, nil),
		recovery: prometheus.NewDesc("sqllock_database_recovery_seconds",
			"How long nothing is granted yet after a fail-over; 0 if locks are granted. Missing where there is no such pause.", nil, nil),
		holders: gauge("holders", "Grants of locks in the database, by whatever process."),
		waiters: gauge("waiters", "Processes that wait for a lock, once for each name."),
		oldest:  gauge("oldest_wait_seconds", "How long the one waits who has waited longest."),
		unheld: gauge("unheld_wait_seconds",
			"For how long a name was waited for and held by nobody at every scrape; the longest."),
	}
}

// Describe is for the registry.
func (d *Database) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{d.up, d.recovery, d.holders, d.waiters, d.oldest, d.unheld} {
		descs <- desc
	}
}

// answer is what the database said.
type answer struct {
	labels   map[string]*figures
	pause    time.Duration // how long nothing is granted yet
	recovers bool          // whether that is known
}

// figures are what is told of a label.
type figures struct {
	holders, waiters int
	oldest, unheld   time.Duration
}

// Collect is for the registry. It asks the database.
func (d *Database) Collect(metrics chan<- prometheus.Metric) {
	// A collector is given no context.
	ctx, cancel := context.WithTimeout(context.Background(), d.timeout) //nolint:forbidigo // see above
	defer cancel()

	said, err := d.inTime(ctx)
	if err != nil {
		metrics <- prometheus.MustNewConstMetric(d.up, prometheus.GaugeValue, 0)

		return
	}

	metrics <- prometheus.MustNewConstMetric(d.up, prometheus.GaugeValue, 1)

	if said.recovers {
		metrics <- prometheus.MustNewConstMetric(d.recovery, prometheus.GaugeValue, said.pause.Seconds())
	}

	for lock, f := range said.labels {
		values := d.settings.values(lock)

		for desc, value := range map[*prometheus.Desc]float64{
			d.holders: float64(f.holders), d.waiters: float64(f.waiters),
			d.oldest: f.oldest.Seconds(), d.unheld: f.unheld.Seconds(),
		} {
			metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, values...)
		}
	}
}

// inTime is ask for a driver that may not return when its context ends: one scrape at a time is in it.
func (d *Database) inTime(ctx context.Context) (answer, error) {
	select {
	case d.asking <- struct{}{}:
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}

	var (
		said     answer
		err      error
		answered = make(chan struct{})
	)

	go func() {
		defer func() { <-d.asking }()
		defer close(answered)

		said, err = d.ask(ctx)
	}()

	select {
	case <-answered:
		return said, err
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
}

// ask asks for the figures of each label; without names those of all, which are there also if they are zero.
func (d *Database) ask(ctx context.Context) (answer, error) {
	// First those who wait: one that is granted its lock in between is a holder then.
	waiters, err := d.locker.Waiters(ctx, sqllock.WaiterFilter{})
	if err != nil && !errors.Is(err, sqllock.ErrUnsupported) {
		d.remember(nil)

		return answer{}, err
	}

	holders, err := d.locker.Holders(ctx, sqllock.Filter{})
	if err != nil {
		d.remember(nil)

		return answer{}, err
	}

	all := map[string]*figures{}

	of := func(name string) *figures {
		lock := d.settings.lock(name)
		if all[lock] == nil {
			all[lock] = new(figures)
		}

		return all[lock]
	}

	if d.settings.label == nil {
		of("")
	}

	taken := map[string]bool{}

	for _, s := range holders {
		taken[s.Name] = true // also by a minimum hold or a lock delay

		if s.Held() {
			of(s.Name).holders++
		}
	}

	unheld := map[string]bool{}

	for _, w := range waiters {
		f := of(w.Name)
		f.waiters++
		f.oldest = max(f.oldest, w.Waited)

		if !taken[w.Name] {
			unheld[w.Name] = true
		}
	}

	for name, lasts := range d.remember(unheld) {
		f := of(name)
		f.unheld = max(f.unheld, lasts)
	}

	said := answer{labels: all}

	if r, err := d.locker.Recovery(ctx); err == nil {
		said.pause, said.recovers = r.Pause(), true
	}

	return said, nil
}

// remember takes the names that are waited for without a holder, and returns for how long
// that was so at every scrape. A hand-over takes an instant, and so no name stays here for long if all is well.
func (d *Database) remember(unheld map[string]bool) map[string]time.Duration {
	now, since, lasts := time.Now(), map[string]time.Time{}, map[string]time.Duration{}

	for name := range unheld {
		since[name] = now
		if before, ok := d.since[name]; ok {
			since[name] = before
		}

		lasts[name] = now.Sub(since[name])
	}

	d.since = since

	return lasts
}
