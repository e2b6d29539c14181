// Package page shows the locks of a database to a browser.
package page

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/doctor"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/text"
	"github.com/sqllock/sqllock/internal/plain"
	"github.com/sqllock/sqllock/sqllock"
)

// Source is the database that is shown. Its errors are shown as they are.
type Source interface {
	// Look is a look at all locks and at all who wait.
	Look(ctx context.Context) (Locks, error)
	// Answer asks for what takes the database no time however many locks there are, and says why there is no answer. It returns what
	// Locks.Pause is.
	Answer(ctx context.Context) (pause string, err error)
	// Inspect is a closer look at one slot of a name; slot 0 if it has no permits.
	Inspect(ctx context.Context, name string, slot int) (sqllock.Status, error)
	// Examine asks the doctor.
	Examine(ctx context.Context) ([]doctor.Finding, error)
}

// Config says what is shown, and to whom.
type Config struct {
	Source Source
	// Database names the database, without a password. Plan says what the doctor is asked about.
	Database string
	Plan     string
	// Host is the one that is listened on, which requests may name beside those of this machine.
	Host string
	// Every is how often browsers ask, and the most often that the database is looked at for them.
	Every time.Duration
	// TellsGuarded: the database says whether a lock is guarded.
	TellsGuarded bool
	// MetricNames: the names of locks are among the metrics.
	MetricNames bool
}

// How often the doctor, and for a probe the database, is asked at most, and how long that and a look may last.
const (
	lookTime   = 10 * time.Second
	doctorAge  = time.Minute
	doctorTime = 30 * time.Second
	healthAge  = time.Second
	healthTime = 2 * time.Second
)

//go:embed page.html style.css script.js
var files embed.FS

// server has one look at the database for all browsers.
type server struct {
	Config

	templates *template.Template
	locks     latest[Locks]
	findings  latest[[]doctor.Finding]
	answer    latest[string]
}

// New is the handler of all pages. It refuses requests of other sites.
func New(config Config) http.Handler {
	templates := template.New("").Funcs(template.FuncMap{"plain": plain.Text, "duration": text.Duration})
	s := &server{Config: config, templates: template.Must(templates.ParseFS(files, "page.html"))}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.overview)
	mux.HandleFunc("GET /name", s.name)
	mux.HandleFunc("GET /doctor", s.doctor)
	mux.HandleFunc("GET /healthz", s.health)
	mux.HandleFunc("GET /metrics", s.metrics)
	mux.Handle("GET /style.css", http.FileServerFS(files))
	mux.Handle("GET /script.js", http.FileServerFS(files))

	return guarded(config.Host, mux)
}

// shown is what a page is made of.
type shown struct {
	*server
	view

	Title  string
	Live   bool   // it is looked at again and again
	Error  string // of the last look
	At     string // when the last look was that had an answer; empty if none had
	Age    string // how long ago that was
	Prefix string // of the names

	Name        string
	Slot        string // as it was asked for; empty if it was not
	Status      sqllock.Status
	StatusKnown bool
	Findings    []doctor.Finding
}

// Seconds are between two looks of a browser without scripts.
func (s shown) Seconds() int { return int(max(1, s.Every.Round(time.Second)/time.Second)) }

// looked tells of a look.
func (s *shown) looked(at time.Time, err error) {
	if err != nil && s.Error == "" {
		s.Error = err.Error()
	}

	if !at.IsZero() {
		s.At, s.Age = at.UTC().Format("2006-01-02 15:04:05 UTC"), text.Duration(time.Since(at))
	}
}

func (s *server) look(ctx context.Context) outcome[Locks] {
	return s.locks.get(ctx, s.Every, lookTime, s.Source.Look)
}

func (s *server) overview(w http.ResponseWriter, r *http.Request) {
	seen := s.look(r.Context())
	page := shown{server: s, Title: "Locks", Live: true, Prefix: r.FormValue("prefix")}
	page.view = viewOf(seen.value, func(name string) bool { return strings.HasPrefix(name, page.Prefix) })
	page.looked(seen.at, seen.err)

	s.write(w, "overview", page)
}

func (s *server) name(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	page := shown{server: s, Live: true, Name: query.Get("name"), Slot: query.Get("slot")}
	page.Title = plain.Text(page.Name)

	slot, err := strconv.ParseUint(cmp.Or(page.Slot, "0"), 10, 16)
	if err != nil || slot >= sqllock.MaxPermits {
		http.Error(w, "there is no such slot", http.StatusBadRequest)

		return
	}

	status, err := s.Source.Inspect(r.Context(), page.Name, int(slot))
	if errors.Is(err, sqllock.ErrInvalidName) {
		http.Error(w, err.Error(), http.StatusBadRequest)

		return
	}

	seen := s.look(r.Context())
	page.view = viewOf(seen.value, func(name string) bool { return name == page.Name })
	page.Status, page.StatusKnown = status, err == nil
	page.looked(seen.at, seen.err)
	page.looked(seen.at, err)

	s.write(w, "name", page)
}

func (s *server) doctor(w http.ResponseWriter, r *http.Request) {
	examined := s.findings.get(r.Context(), doctorAge, doctorTime, s.Source.Examine)
	page := shown{server: s, Title: "Doctor", Findings: examined.value}
	page.looked(examined.at, examined.err)

	s.write(w, "doctor", page)
}

func (s *server) health(w http.ResponseWriter, r *http.Request) {
	answer := s.answer.get(r.Context(), healthAge, healthTime, s.Source.Answer)
	if answer.err != nil {
		http.Error(w, answer.err.Error(), http.StatusServiceUnavailable)

		return
	}

	said := "ok\n"
	if answer.value != "" {
		said += plain.Text(answer.value) + "\n"
	}

	_, _ = w.Write([]byte(said))
}

func (s *server) write(w http.ResponseWriter, name string, page shown) {
	var b bytes.Buffer

	if err := s.templates.ExecuteTemplate(&b, name, page); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)

		return
	}

	w.Header().Set("Content-Type", "text/html; charset=utf-8")

	if page.Error != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
	}

	_, _ = w.Write(b.Bytes())
}
