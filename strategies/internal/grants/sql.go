package grants

import (
	"embed"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sqllock/sqllock/databases"
)

// All that is sent for locks is in one file for each dialect, in paragraphs:
//
//	-- let now = clock_timestamp()    {now} stands for this below. A let goes on over the comment lines that follow it.
//
//	-- name: grant.renew              A section: the statement below, for fields with this tag. It may have several names.
//	UPDATE ... {now} + :lease         :lease is a value that is bound.
//
//	-- then                           The next step, on TiDB: see databases.Statement.
//
//	-- none: grant.date, forupdate    Sections, or groups of them, that the dialect does without.
//
// A strategy may have sections of its own in the place of others: see Statements.
//
// A statement is called by the first word of its section's name; the other words tell its forms apart. Other lines that
// begin with two dashes say why, and are not sent. If file and fields differ there is no strategy, but a panic.
//
//go:embed postgres.sql mysql.sql tidb.sql sqlite.sql
var files embed.FS

// source is a file that is being read.
type source struct {
	mark     string // of a placeholder
	numbered bool   // placeholders have numbers, so that one may stand twice
	lets     map[string]string
	sections map[string]databases.Statement // empty where it is said that there is none
	asked    map[string]bool                // what a field or a reference has asked for
	errs     []error
}

// load fills the fields of a struct with the sections of a file, for each of the strategies.
func load[T any](text, mark string, numbered bool, strategies ...string) (map[string]T, error) {
	s := &source{
		mark: mark, numbered: numbered, lets: make(map[string]string), sections: make(map[string]databases.Statement),
		asked: make(map[string]bool),
	}

	for _, paragraph := range strings.Split(text, "\n\n") {
		s.paragraph(strings.Split(strings.Trim(paragraph, "\n"), "\n"))
	}

	filled := make(map[string]T)

	for _, strategy := range strategies {
		var into T

		s.fill(reflect.ValueOf(&into).Elem(), strategy)
		filled[strategy] = into
	}

	for _, name := range slices.Sorted(maps.Keys(s.sections)) {
		s.check(s.asked[name], "nothing takes, or would take, section %q", name)
	}

	for _, let := range slices.Sorted(maps.Keys(s.lets)) {
		s.check(s.asked["{"+let+"}"], "nothing uses let %q", let)
	}

	return filled, errors.Join(s.errs...)
}

func (s *source) check(ok bool, format string, args ...any) {
	if !ok {
		s.errs = append(s.errs, fmt.Errorf(format, args...))
	}
}

func (s *source) paragraph(lines []string) {
	var (
		names []string
		let   string
		steps = []string{""}
	)

	for _, line := range lines {
		directive, rest, _ := strings.Cut(strings.TrimPrefix(line, "-- "), " ")

		switch comment := strings.HasPrefix(line, "--"); {
		case line == "":
		case !comment:
			steps[len(steps)-1] += s.expand(line) + "\n"
		case line == "-- then":
			steps = append(steps, "")
		case directive == "name:":
			names, let = append(names, rest), ""
		case directive == "none:":
			for _, name := range strings.Split(rest, ", ") {
				s.section(name, databases.Statement{})
			}
		case directive == "let":
			let, rest, _ = strings.Cut(rest, " = ")
			s.check(s.lets[let] == "" && rest != "", "let %q stands twice, or for nothing", let)
			s.lets[let] = s.expand(rest)
		case let != "":
			s.lets[let] += "\n" + s.expand(strings.TrimPrefix(line, "--"))
		}
	}

	s.check(len(names) == 0 || !slices.Contains(steps, ""), "%q have no statement, or a step of it is empty", names)
	s.check(len(names) > 0 || slices.Equal(steps, []string{""}), "a statement has no name: %q", lines)

	for _, name := range names {
		s.section(name, *s.statement(name, steps))
	}
}

func (s *source) section(name string, statement databases.Statement) {
	_, twice := s.sections[name]
	s.check(!twice, "section %q stands twice, or it is said that there is none", name)
	s.sections[name] = statement
}

var reference = regexp.MustCompile(`\{[\w-]+\}`)

// expand puts in what the references in a line stand for.
func (s *source) expand(line string) string {
	return reference.ReplaceAllStringFunc(line, func(of string) string {
		text := s.lets[strings.Trim(of, "{}")]
		s.check(text != "", "unknown let %s in %q", of, line)
		s.asked[of] = true

		return text
	})
}

// argument is a value that is bound, or what may have a colon and is none.
var argument = regexp.MustCompile(`'[^']*'|"[^"]*"|::|:[a-z_]+`)

// statement makes one of its steps.
func (s *source) statement(name string, steps []string) *databases.Statement {
	if len(steps) == 0 {
		return nil
	}

	called, _, _ := strings.Cut(name, " ")
	made := &databases.Statement{Name: called, Then: s.statement(name, steps[1:])}
	numbered := s.numbered && !strings.Contains(steps[0], "...") // of a list it is not known yet how many there are

	made.SQL = argument.ReplaceAllStringFunc(strings.TrimSpace(steps[0]), func(of string) string {
		if of[0] != ':' || of == "::" {
			return of
		}

		n := slices.Index(made.Args, of[1:]) + 1
		if n == 0 || !numbered {
			made.Args = append(made.Args, of[1:])
			n = len(made.Args)
		}

		if !numbered {
			return s.mark
		}

		return s.mark + strconv.Itoa(n)
	})

	return made
}

// fill gives each field its sections. The tag "sql" of a struct is a group.
func (s *source) fill(into reflect.Value, strategy string) {
	for i := range into.NumField() {
		tags := into.Type().Field(i).Tag
		group := tags.Get("sql")

		switch to := into.Field(i).Addr().Interface().(type) {
		case *databases.Statement:
			for _, section := range s.take(tags, strategy) {
				*to = section
			}
		case *[]databases.Statement:
			*to = s.take(tags, strategy)
		default:
			_, none := s.sections[group]
			if s.asked[group] = true; !none {
				s.fill(into.Field(i), strategy)
			}
		}
	}
}

// take returns the sections that the tag of the strategy's name names, if there are any, or else those of the tag "sql".
func (s *source) take(tags reflect.StructTag, strategy string) (found []databases.Statement) {
	for _, key := range []string{strategy, "sql"} {
		tag, ok := tags.Lookup(key)
		if !ok || found != nil {
			continue
		}

		for _, name := range strings.Split(tag, ",") {
			section, ok := s.sections[name]
			s.check(ok, "no section %q", name)

			if s.asked[name] = true; section.SQL != "" {
				found = append(found, section)
			}
		}
	}

	return found
}
