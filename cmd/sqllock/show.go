package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/doctor"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/text"
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/internal/plain"
	"github.com/sqllock/sqllock/sqllock"
)

// showFlags are the flags of "sqllock show".
type showFlags struct {
	database

	slot   int
	asJSON bool
}

func newShow() *cobra.Command {
	f := &showFlags{}

	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show who holds a lock, or who had it last",
		Long: `Show who holds a lock, or who had it last and why it ended. Exits with 1 if
nobody holds it. "waiting" are those who wait, in the order of arrival. "taken"
is for how long --min-hold keeps the name taken though nobody holds it any more;
"guarded" is whether a transaction keeps the next holder out at this moment
(Lock.Guard), and the session that it is of ("row_locked" in --json) where the
database's user may see that; SQLite does not tell. "tick" is the latest point
in time whose job was done ("sqllock run --tick"), and "asked" why the holder
was asked to release the lock ("sqllock resign"); in --json that is
"release_requested". "pause" says that nothing is granted after a fail-over, and
until when; in --json "recovery" is what "sqllock recovery --json" shows.

Of a name with permits each slot is shown that is taken, and --slot N shows one
of them as the lock of a name without permits. In --json "lock", "last" and
"guarded" are about slot 0, or that of --slot, and "others" about the other
slots. Of a shared lock ("sqllock run --shared") all readers are shown, who have
one token; in --json "lock" is one of them, and the rest is in "others".`,
		Example: `  sqllock show nightly
  sqllock show nightly --json
  sqllock show export --slot 2`,
		Args: oneName, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkSlot(f.slot); err != nil {
				return usage(cmd, err)
			}

			return f.look(cmd.Context(), func(l looker) error { return f.show(cmd.Context(), cmd.OutOrStdout(), l, args[0]) })
		},
	}

	f.register(cmd)
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print a JSON object")
	cmd.Flags().IntVar(&f.slot, "slot", 0, "show one of the permits of the name")

	return cmd
}

// checkSlot says what is wrong with --slot.
func checkSlot(slot int) error {
	if slot < 0 || slot >= sqllock.MaxPermits {
		return fmt.Errorf("--slot %d is not between 0 and %d", slot, sqllock.MaxPermits-1)
	}

	return nil
}

func (f *showFlags) show(ctx context.Context, out io.Writer, l looker, name string) error {
	s, err := l.see(ctx, name, f.slot)
	if err != nil {
		return err
	}

	if s.slot = f.given("slot"); s.slot {
		s.listed = slices.DeleteFunc(s.listed, func(status sqllock.Status) bool { return status.Slot != f.slot })
	}

	if s.waiters, err = l.Waiters(ctx, sqllock.WaiterFilter{Name: name}); err != nil {
		return err
	}

	if s.recovery, err = l.recovery(ctx); err != nil {
		return err
	}

	if s.status.Guarded {
		s.row = inTheRow(ctx, l.db, name, f.slot)
	}

	if f.asJSON {
		// SQLite has no row locks to look at.
		err = printJSON(out, s.json(l.db.Target.Dialect != databases.SQLite))
	} else {
		err = s.print(out)
	}

	if err == nil && s.held() == 0 {
		err = exitError{exitNotHeld, nil}
	}

	return err
}

// seen is what was seen of a name; at a glance only who has it.
type seen struct {
	status  sqllock.Status   // of one slot
	slot    bool             // that was asked for
	listed  []sqllock.Status // who has it, or keeps it taken: of all slots, if none was asked for
	waiters []sqllock.Waiter
	row     string // who has its row locked, in lines, if it is guarded

	recovery sqllock.Recovery
}

// see looks at one slot of a name, and at who has the name.
func (l looker) see(ctx context.Context, name string, slot int) (s seen, err error) {
	if s.status, err = l.Inspect(ctx, sqllock.SlotName(name, slot)); err == nil {
		s.listed, err = l.Holders(ctx, sqllock.Filter{Name: name})
	}

	return s, err
}

// others are the taken slots beside the one that was looked at, and the readers beside that one.
func (s seen) others() []sqllock.Status {
	return slices.DeleteFunc(slices.Clone(s.listed), func(other sqllock.Status) bool {
		reads := other.Shared && s.status.Shared && other.Token == s.status.Token

		return other.Slot == s.status.Slot && (!reads || other.Owner == s.status.Owner)
	})
}

// held is how many slots are held.
func (s seen) held() int {
	held := map[int]bool{}

	for _, status := range append(s.others(), s.status) {
		if status.Held() {
			held[status.Slot] = true
		}
	}

	return len(held)
}

// granted says whether the slot that was looked at was anybody's: a row alone has a token, too.
func (s seen) granted() bool { return s.status.Token > 0 && s.status.Holder != sqllock.Holder{} }

// readers are those who share the slot that was looked at.
func (s seen) readers() []sqllock.Status {
	if !s.status.Held() || !s.status.Shared {
		return nil
	}

	return append([]sqllock.Status{s.status}, slices.DeleteFunc(s.others(), func(other sqllock.Status) bool { return other.Slot != s.status.Slot })...)
}

// taken says for how long a name that nobody holds is kept taken; empty if it is
// free.
func taken(status sqllock.Status) string {
	if status.Taken <= 0 {
		return ""
	}

	return "for another " + text.Duration(status.Taken) + " (minimum hold or lock delay)"
}

// mostWaiters bounds how many of those who wait are shown to a person.
const mostWaiters = 20

func (s seen) print(out io.Writer) error {
	var b strings.Builder

	add := func(key, value string) { fmt.Fprintf(&b, "%-10s%s\n", key, plain.Text(value)) }
	sentence := func(key, said string) {
		paragraph(&b, fmt.Sprintf("%-10s", key), said, cmp.Or(terminalWidth(out), helpWidth))
	}
	token := func() { add("token", strconv.FormatInt(s.status.Token, 10)) }
	readers := s.readers()

	add("name", s.status.Name)

	if s.slot {
		add("slot", strconv.Itoa(s.status.Slot))
	}

	switch {
	case slices.ContainsFunc(s.others(), func(other sqllock.Status) bool { return other.Slot != s.status.Slot }):
		s.permits(add)
	case len(readers) > 1:
		add("held by", fmt.Sprintf("%d readers", len(readers)))

		add("readers", holding(readers[0]))

		for _, status := range readers[1:] {
			add("", holding(status))
		}

		add("strategy", s.status.Strategy)
		token()
	case s.status.Held():
		s.holder(add)
	default:
		add("held by", "nobody")

		if kept := taken(s.status); kept != "" {
			add("taken", kept)
		}

		switch {
		case s.granted():
			add("last", s.status.Holder.String())
			token()
		case s.status.Token > 0:
			add("last", "nobody yet")
		}

		if s.status.Ended != "" {
			add("ended", ended(s.status))
		}
	}

	if s.status.Mark != 0 {
		add("tick", tickOf(s.status.Mark).Format(time.RFC3339)+", whose job was done")
	}

	if s.status.Guarded {
		add("guarded", "a transaction keeps the next holder out: its row is locked")

		for line := range strings.SplitSeq(s.row, "\n") {
			sentence("", line)
		}
	}

	if s.recovery.Pause() > 0 {
		sentence("pause", doctor.Said(s.recovery))
	}

	s.line(add)

	_, err := io.WriteString(out, b.String())

	return err
}

// permits are the lines about a name of which several slots are known.
func (s seen) permits(add func(key, value string)) {
	few := map[int]string{0: "nobody", 1: "1 holder of a permit"}
	add("held by", cmp.Or(few[s.held()], fmt.Sprintf("%d holders of permits", s.held())))

	for _, status := range s.listed {
		said := fmt.Sprintf("nobody, taken %s, last %s, token %d", taken(status), status.Holder, status.Token)

		if status.Held() {
			said = fmt.Sprintf("%s, token %d", holding(status), status.Token)
		}

		if status.Shared {
			said += ", shared"
		}

		add(fmt.Sprintf("slot %d", status.Slot), said)
	}
}

// holder are the lines about a lock that one holds.
func (s seen) holder(add func(key, value string)) {
	status := s.status

	add("held by", status.Holder.String())

	if status.Shared {
		add("shared", "yes: it is a reader, beside whom others may read")
	}

	if status.Detached {
		add("detached", "yes: no process has it, and who has its claim can adopt or release it")
	}

	add("for", text.Duration(status.HeldFor))
	add("lease", text.Duration(status.Remaining)+" unless renewed")
	add("strategy", status.Strategy)
	add("token", strconv.FormatInt(status.Token, 10))

	if status.ReleaseRequested != "" {
		add("asked", "to release it: "+status.ReleaseRequested)
	}

	if status.Holder.Metadata != "" {
		add("metadata", status.Holder.Metadata)
	}
}

// holding says who holds a lock, and since when.
func holding(status sqllock.Status) string {
	return fmt.Sprintf("%s, for %s, lease %s", status.Holder, text.Duration(status.HeldFor), text.Duration(status.Remaining))
}

// line are the lines about those who wait.
func (s seen) line(add func(key, value string)) {
	key := "waiting"

	for i, w := range s.waiters {
		if i == mostWaiters {
			add("", fmt.Sprintf("and %d more", len(s.waiters)-i))

			return
		}

		said := fmt.Sprintf("%d. %s, for %s", i+1, w.Holder, text.Duration(w.Waited))
		if w.Shared {
			said += ", as a reader"
		}

		add(key, said)
		key = ""
	}
}

// ended says why a grant ended.
func ended(status sqllock.Status) string {
	if status.Detail == "" {
		return string(status.Ended)
	}

	return string(status.Ended) + ": " + status.Detail
}

// seenJSON is a name as --json shows it.
type seenJSON struct {
	Name    string       `json:"name"`
	Slot    int          `json:"slot"`
	Held    bool         `json:"held"`
	Permits *int         `json:"permits_held,omitempty"` // nil if only one slot was asked for
	Readers int          `json:"readers,omitempty"`
	Guarded *bool        `json:"guarded,omitempty"` // nil if that is not known
	Row     string       `json:"row_locked,omitempty"`
	Taken   float64      `json:"taken_seconds,omitempty"`
	Asked   string       `json:"release_requested,omitempty"`
	Tick    *time.Time   `json:"tick,omitempty"` // nil if there is none
	Lock    *lockJSON    `json:"lock,omitempty"`
	Others  []lockJSON   `json:"others,omitempty"` // of the permits beside that slot, and the other readers
	Last    *lastJSON    `json:"last,omitempty"`
	Waiting []waiterJSON `json:"waiting,omitempty"`
	// As of "sqllock recovery"; nil if locks are granted.
	Recovery map[string]any `json:"recovery,omitempty"`
}

type lastJSON struct {
	Token int64 `json:"token"`
	holderJSON
	Ended string `json:"ended,omitempty"`
}

// json is what --json shows; tells: the database says whether a transaction is guarded.
func (s seen) json(tells bool) seenJSON {
	held := s.held()
	shown := seenJSON{
		Name: s.status.Name, Slot: s.status.Slot, Held: held > 0, Readers: len(s.readers()), Taken: seconds(s.status.Taken),
		Row: strings.ReplaceAll(s.row, "\n", " "), Asked: s.status.ReleaseRequested,
		Others: mapped(s.others(), jsonOf), Waiting: mapped(s.waiters, waiterOf),
	}

	if !s.slot {
		shown.Permits = &held
	}

	if s.recovery.Pause() > 0 {
		shown.Recovery = recoveryOf(s.recovery)
	}

	if s.status.Mark != 0 {
		shown.Tick = new(tickOf(s.status.Mark))
	}

	if s.status.Held() {
		shown.Lock = new(jsonOf(s.status))
	}

	if tells {
		shown.Guarded = &s.status.Guarded
	}

	if last := s.status.Holder; s.granted() {
		shown.Last = &lastJSON{s.status.Token, holderJSON{Host: last.Host, PID: last.PID, Label: last.Label}, ended(s.status)}
	}

	return shown
}

// tickOf is a mark as package once records it.
func tickOf(mark int64) time.Time { return time.UnixMicro(mark).UTC() }
