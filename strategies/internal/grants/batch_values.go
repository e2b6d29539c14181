package grants

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// batchValues are what a statement about several requests binds: an array for each
// column that its Args name, or a JSON array of objects, "calls", and beside it the values of the first.
func (s *Store) batchValues(statement databases.Statement, requests []strategies.Request) databases.Values {
	return s.keyedValues(statement, requests, nil)
}

// keyedValues are those of a statement about keys besides, of all requests or of none.
func (s *Store) keyedValues(statement databases.Statement, requests []strategies.Request, keys []any) databases.Values {
	values := databases.Values{"strategy": s.strategy, "where": s.Where(), "process": ""}

	if slices.Contains(statement.Args, "calls") && len(requests) > 0 {
		values = s.values(requests[0])
		values["calls"] = s.calls(requests, keys, slices.Contains(statement.Args, "host"))

		return values
	}

	for _, r := range requests {
		if r.Process != "" {
			values["process"] = r.Process // all are of one
		}
	}

	for _, arg := range statement.Args {
		switch column, ok := columns[arg]; {
		case ok:
			values[arg] = array(requests, func(r strategies.Request) string { return column(s, r) })
		case arg == "keys":
			values[arg] = Array(keys)
		}
	}

	return values
}

// columns are what there are arrays of.
var columns = map[string]func(*Store, strategies.Request) string{
	"names":     func(_ *Store, r strategies.Request) string { return r.Name },
	"owners":    func(_ *Store, r strategies.Request) string { return r.Owner },
	"leases":    func(s *Store, r strategies.Request) string { return number(s.lease(r.Lease)) },
	"delays":    func(_ *Store, r strategies.Request) string { return number(ceil(r.LockDelay)) },
	"hosts":     func(_ *Store, r strategies.Request) string { return r.Holder.Host },
	"pids":      func(_ *Store, r strategies.Request) string { return number(int64(r.Holder.PID)) },
	"labels":    func(_ *Store, r strategies.Request) string { return r.Holder.Label },
	"metadatas": func(_ *Store, r strategies.Request) string { return r.Holder.Metadata },
	"tokens":    func(_ *Store, r strategies.Request) string { return number(tokens(r)) },
	"firsts":    func(_ *Store, r strategies.Request) string { return strconv.FormatBool(r.First) },
	"lines":     func(_ *Store, r strategies.Request) string { return number(r.Line) },
	"waits":     func(_ *Store, r strategies.Request) string { return r.Wait },
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// array is the text of an array of a column's values.
func array[T any](rows []T, column func(T) string) string {
	var b strings.Builder

	for i, row := range rows {
		b.WriteByte("{,"[min(i, 1)])
		b.WriteByte('"')
		b.WriteString(quoteElement.Replace(column(row)))
		b.WriteByte('"')
	}

	b.WriteByte('}')

	return b.String()
}

// quoteElement escapes what has a meaning between the quotes of an array's element
// (https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO).
var quoteElement = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// call is a request in JSON, without what it has in common with the first of them: nearly always all but the name and the
// owner. What is left out is bound as for one request, once for all.
type call struct {
	Name     string  `json:"name"`
	Owner    string  `json:"owner"`
	Lease    *int64  `json:"lease,omitempty"`
	Delay    *int64  `json:"delay,omitempty"`
	Host     *string `json:"host,omitempty"`
	PID      *int    `json:"pid,omitempty"`
	Label    *string `json:"label,omitempty"`
	Metadata *string `json:"metadata,omitempty"`
	Tokens   *int64  `json:"tokens,omitempty"`
	First    *bool   `json:"first,omitempty"`
	Line     *int64  `json:"line,omitempty"`
	Wait     *string `json:"wait,omitempty"`
	Key      any     `json:"key,omitempty"`
}

// calls are the names and owners of requests, and their keys if there are any. Whole ones have what is asked for besides:
// what only tells whose the names are stays as short as it can be, however much metadata there is.
func (s *Store) calls(requests []strategies.Request, keys []any, whole bool) string {
	list := make([]call, len(requests))

	for i, r := range requests {
		list[i] = call{Name: r.Name, Owner: r.Owner}
		if whole {
			list[i] = s.differing(r, requests[0])
		}

		if keys != nil {
			list[i].Key = keys[i]
		}
	}

	return JSON(list)
}

// differing is a call with what it has not in common with the first.
func (s *Store) differing(r, first strategies.Request) call {
	return call{
		r.Name, r.Owner, unless(s.lease(first.Lease), s.lease(r.Lease)), unless(ceil(first.LockDelay), ceil(r.LockDelay)),
		unless(first.Holder.Host, r.Holder.Host), unless(first.Holder.PID, r.Holder.PID),
		unless(first.Holder.Label, r.Holder.Label), unless(first.Holder.Metadata, r.Holder.Metadata),
		unless(tokens(first), tokens(r)), unless(first.First, r.First), unless(first.Line, r.Line), unless(first.Wait, r.Wait), nil,
	}
}

// unless is a value, or nil if it is that one.
func unless[T comparable](that, value T) *T {
	if value == that {
		return nil
	}

	return &value
}

// JSON is the text of strings and numbers, which always have a form in JSON.
func JSON(value any) string {
	text, _ := json.Marshal(value)

	return string(text)
}
