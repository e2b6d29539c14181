package grants

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// batchValues are what a statement about several requests binds: an array for each
// column that its Args name, or a JSON array of objects, "calls".
func (s *Store) batchValues(statement databases.Statement, requests []strategies.Request) databases.Values {
	return s.keyedValues(statement, requests, nil)
}

// keyedValues are those of a statement about keys besides, of all requests or of none.
func (s *Store) keyedValues(statement databases.Statement, requests []strategies.Request, keys []any) databases.Values {
	values := databases.Values{"strategy": s.strategy, "process": ""}

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
		case arg == "calls":
			values[arg] = s.calls(requests, keys)
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

// call is a request in JSON.
type call struct {
	Name     string `json:"name"`
	Owner    string `json:"owner"`
	Lease    int64  `json:"lease"`
	Delay    int64  `json:"delay"`
	Host     string `json:"host"`
	PID      int    `json:"pid"`
	Label    string `json:"label"`
	Metadata string `json:"metadata"`
	Tokens   int64  `json:"tokens"`
	First    bool   `json:"first"`
	Line     int64  `json:"line"`
	Wait     string `json:"wait"`
	Key      any    `json:"key,omitempty"`
}

// calls are the requests, and their keys if there are any.
func (s *Store) calls(requests []strategies.Request, keys []any) string {
	list := make([]call, len(requests))
	for i, r := range requests {
		list[i] = call{
			r.Name, r.Owner, s.lease(r.Lease), ceil(r.LockDelay), r.Holder.Host, r.Holder.PID, r.Holder.Label, r.Holder.Metadata, tokens(r), r.First, r.Line, r.Wait, nil,
		}

		if keys != nil {
			list[i].Key = keys[i]
		}
	}

	return JSON(list)
}

// JSON is the text of strings and numbers, which always have a form in JSON.
func JSON(value any) string {
	text, _ := json.Marshal(value)

	return string(text)
}
