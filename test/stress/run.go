//go:build unix

package stress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sqllock/sqllock/test/servers"
)

// Options of a run.
type Options struct {
	// Pairs to run; Duration is shared by the pairs of one database, which run one after the other, while the
	// databases run beside each other.
	Pairs    []Pair
	Duration time.Duration
	// Rounds ends each pair after so many rounds; zero is no limit.
	Rounds int
	Faults []Fault
	// Seed of the first round; each further one has the next.
	Seed uint64
	// Settings of the rounds. Their pair and faults are set by the run.
	Round Settings
	// Beside is another revision, whose workers are every second one; nil: all are ours.
	Beside *Revision
	// Folder keeps the histories of rounds in which something was wrong.
	Folder string
	// Log gets a line for each round.
	Log io.Writer
}

// DefaultSettings are those of a round.
func DefaultSettings() Settings {
	return Settings{
		Names: names, Processes: 4, Goroutines: 4, Lease: time.Second, Length: 20 * time.Second, Profile: usual,
	}
}

// Outcome is what became of a pair.
type Outcome struct {
	Pair       Pair
	Rounds     int
	Tally      tally
	Violations []violation
	Err        error // why it could not be run, or not to the end
	Repeat     string
}

// Run runs all pairs, and returns what became of each. Servers that the pairs need are in set.
func Run(ctx context.Context, set *servers.Set, o Options) []Outcome {
	outcomes := inLanes(ctx, o.Pairs, func(p Pair) string { return p.Engine },
		func(ctx context.Context, machine *stalls, among []Pair, i int) Outcome {
			return runPair(ctx, set, machine, among[i], o, o.Duration/time.Duration(len(among)))
		})

	slices.SortFunc(outcomes, func(a, b Outcome) int { return slices.Index(o.Pairs, a.Pair) - slices.Index(o.Pairs, b.Pair) })

	return outcomes
}

// inLanes runs what belongs to one lane one after the other, and the lanes beside each other, while it watches the
// machine. The results come in no order.
func inLanes[T, R any](
	ctx context.Context, all []T, lane func(T) string, run func(ctx context.Context, machine *stalls, among []T, i int) R,
) []R {
	var (
		running sync.WaitGroup
		mutex   sync.Mutex
		results []R
		machine stalls
	)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	go machine.watch(ctx, os.TempDir())

	for _, among := range byLane(all, lane) {
		running.Go(func() {
			for i := range among {
				result := run(ctx, &machine, among, i)

				mutex.Lock()
				results = append(results, result)
				mutex.Unlock()
			}
		})
	}

	running.Wait()

	return results
}

// byLane groups what belongs to one lane.
func byLane[T any](all []T, lane func(T) string) [][]T {
	var groups [][]T

	for _, one := range all {
		i := slices.IndexFunc(groups, func(group []T) bool { return lane(group[0]) == lane(one) })
		if i < 0 {
			groups = append(groups, nil)
			i = len(groups) - 1
		}

		groups[i] = append(groups[i], one)
	}

	return groups
}

// runPair runs rounds until the time is over or something is wrong.
func runPair(ctx context.Context, set *servers.Set, machine *stalls, pair Pair, o Options, length time.Duration) Outcome {
	outcome := Outcome{Pair: pair}
	began := time.Now()

	h, err := newHost(ctx, set, machine, pair, pair.Strategy, o.Round.Names, o.Beside)
	if err != nil {
		outcome.Err = err

		return outcome
	}

	s := o.Round
	s.Pair, s.Faults, s.Mixed = pair, o.Faults, o.Beside != nil
	// Without faults strict promises can be checked, of the order for one.
	s.Lead = s.Length / 5

	for round := 0; round == 0 || time.Since(began) < length && (o.Rounds == 0 || round < o.Rounds); round++ {
		seed := o.Seed + uint64(round)

		if o.Beside != nil {
			s.Profile = besides[seed%uint64(len(besides))]
		}

		judged, err := h.tryRound(ctx, s, seed, o.Log)
		outcome.Rounds++
		outcome.Tally.add(judged.tally)

		if ctx.Err() != nil {
			outcome.Err = context.Cause(ctx)

			break
		}

		if err != nil || len(judged.violations) > 0 {
			outcome.Err, outcome.Violations = err, judged.violations
			outcome.Repeat = s.command(o.Faults, seed) + o.Beside.flags()

			if kept, keepErr := keep(judged, pair, o.Folder, outcome.Repeat); keepErr != nil {
				outcome.Err = errors.Join(err, keepErr)
			} else {
				outcome.Repeat += "   # history: " + kept
			}

			break
		}

		more := ""
		if judged.plan.plain {
			more = ", plain"
		}

		if o.Beside != nil {
			more += fmt.Sprintf(", %d grants to workers of %s", judged.tally.Other, o.Beside)
		}

		fmt.Fprintf(o.Log, "%-18s seed %d: %d operations, %d faults (%s), %d grants, out of order %d of %d%s\n",
			pair, seed, judged.tally.checked(), judged.tally.struck(), kinds(judged.plan.kinds), judged.tally.Grants,
			judged.tally.Disordered, judged.tally.Contested, more)
	}

	if err := h.drop(); err != nil {
		outcome.Err = errors.Join(outcome.Err, err)
	}

	return outcome
}

// command is how one round is repeated.
func (s Settings) command(faults []Fault, seed uint64) string {
	words := "none"
	if len(faults) > 0 {
		words = List(faults)
	}

	return fmt.Sprintf("stress -variants=none -pair %s -faults %q -round %s -lease %s -processes %d -goroutines %d -seed %d -rounds 1",
		s.Pair, words, s.Length, s.Lease, s.Processes, s.Goroutines, seed)
}

// kinds names the faults of a plan, shortly.
func kinds(faults []Fault) string {
	switch len(faults) {
	case 0:
		return "none"
	case 1:
		return string(faults[0])
	default:
		return "mixed"
	}
}

// keep moves what a round left to where it can be looked at, with what was wrong and how to repeat it.
func keep(judged result, pair Pair, folder, repeat string) (string, error) {
	kept := filepath.Join(folder, fmt.Sprintf("%s-%d", strings.ReplaceAll(pair.String(), "/", "-"), judged.seed))

	text, err := json.MarshalIndent(struct {
		Repeat     string        `json:"repeat"`
		Violations []violation   `json:"violations"`
		Faults     []disturbance `json:"faults"`
	}{repeat, judged.violations, judged.disturbances}, "", "  ")
	if err != nil {
		return "", err
	}

	if err := os.WriteFile(filepath.Join(judged.folder, "report.json"), text, 0o600); err != nil {
		return "", err
	}

	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}

	_ = os.RemoveAll(kept)

	// The register's socket does not move between file systems.
	_ = os.Remove(filepath.Join(judged.folder, "register"))

	if err := os.Rename(judged.folder, kept); err == nil {
		return kept, nil
	}

	return kept, errors.Join(os.CopyFS(kept, os.DirFS(judged.folder)), os.RemoveAll(judged.folder))
}

// Caught is what became of a variant.
type Caught struct {
	Variant *Variant
	// By are the checks that found something; none, if the variant survived.
	By     []string
	Rounds int
	Err    error
}

// variantRounds is how many rounds a variant gets to show that it is broken. Each longerEvery of them are longer than those
// before by as much as the first: a machine with too much to do makes too few grants in a short one.
const (
	variantRounds = 24
	longerEvery   = 6
	// variantLanes is how many variants run at a time. None of their faults strikes the server, which others use, too.
	variantLanes = 4
)

// RunVariants runs the known-bad variants of the pairs, until each is caught or has had its rounds: all, or the first for each check.
func RunVariants(ctx context.Context, set *servers.Set, o Options, forChecks bool) []Caught {
	seen := make(map[string]bool)
	all := slices.DeleteFunc(Variants(), func(v *Variant) bool {
		left := !slices.Contains(o.Pairs, v.Pair) || forChecks && seen[v.By[0]]
		seen[v.By[0]] = seen[v.By[0]] || !left

		return left
	})

	place := func(v *Variant) int { return slices.Index(all, v) }

	found := inLanes(ctx, all, func(v *Variant) string { return strconv.Itoa(place(v) % variantLanes) },
		func(ctx context.Context, machine *stalls, among []*Variant, i int) Caught {
			return runVariant(ctx, set, machine, among[i], place(among[i]), o)
		})

	slices.SortFunc(found, func(a, b Caught) int { return place(a.Variant) - place(b.Variant) })

	return found
}

func runVariant(ctx context.Context, set *servers.Set, machine *stalls, v *Variant, number int, o Options) Caught {
	caught := Caught{Variant: v}

	h, err := newHost(ctx, set, machine, v.Pair, fmt.Sprintf("variant_%d", number), o.Round.Names, nil)
	if err != nil {
		caught.Err = err

		return caught
	}

	s := o.Round
	s.Pair, s.Faults, s.Variant, s.Length, s.Mixed = v.Pair, v.Faults, v.id(), 5*s.Lease, v.half

	// Those who wait in line for long keep others from racing, which most variants need.
	s.Profile.Patient = 0

	if v.Profile != (profile{}) {
		s.Profile = v.Profile
	}

	if v.tune != nil {
		v.tune(&s)
	}

	first := s.Length

	for caught.Rounds < variantRounds && len(caught.By) == 0 && caught.Err == nil {
		var judged result

		s.Length = first * time.Duration(1+caught.Rounds/longerEvery)

		// Odd seeds are a mix of the variant's faults.
		judged, caught.Err = h.tryRound(ctx, s, (o.Seed|1)+2*uint64(caught.Rounds), o.Log)
		caught.Rounds++

		for _, violation := range judged.violations {
			if slices.Contains(v.By, violation.Check) && !slices.Contains(caught.By, violation.Check) {
				caught.By = append(caught.By, violation.Check)
			}
		}

		_ = os.RemoveAll(judged.folder)
	}

	caught.Err = errors.Join(caught.Err, h.drop())

	return caught
}
