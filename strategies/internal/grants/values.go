package grants

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// columns are the values that statements bind of something, by name. A statement about several of them binds an array of each
// column's values ("each_name" and so on, PostgreSQL), which is empty if all have the value that it binds beside it; or "calls", a
// JSON array of objects, and the values of the first beside it.
type columns[T any] map[string]func(T) any

// call is a request as statements bind it. The key is that of a session's lock, if there is one.
type call struct {
	*strategies.Request

	store *Store
	key   any
}

var callColumns = columns[call]{
	"name":         func(c call) any { return c.Name },
	"owner":        func(c call) any { return c.Owner },
	"key":          func(c call) any { return c.key },
	"strategy":     func(c call) any { return c.store.strategy },
	"where":        func(c call) any { return c.store.Where() },
	"lease":        func(c call) any { return c.store.lease(c.Lease) },
	"cluster":      func(c call) any { return c.store.clusterName() },
	"promise":      func(c call) any { return c.store.promised(*c.Request) },
	"delay":        func(c call) any { return ceil(c.LockDelay) },
	"min_hold":     func(c call) any { return ceil(c.MinHold) },
	"durable":      func(c call) any { return c.DurableRelease },
	"asynchronous": func(c call) any { return asynchronous(*c.Request) },
	"tokens":       func(c call) any { return c.store.tokens(*c.Request) },
	"first":        func(c call) any { return c.First },
	"line":         func(c call) any { return c.Line },
	"process":      func(c call) any { return c.Process },
	"wait":         func(c call) any { return c.Wait },
	"host":         func(c call) any { return c.Holder.Host },
	"pid":          func(c call) any { return int64(c.Holder.PID) },
	"label":        func(c call) any { return c.Holder.Label },
	"metadata":     func(c call) any { return c.Holder.Metadata },
}

var waiterColumns = columns[strategies.Waiter]{
	"id":       func(w strategies.Waiter) any { return w.ID },
	"name":     func(w strategies.Waiter) any { return w.Name },
	"process":  func(w strategies.Waiter) any { return w.Process },
	"host":     func(w strategies.Waiter) any { return w.Holder.Host },
	"pid":      func(w strategies.Waiter) any { return int64(w.Holder.PID) },
	"label":    func(w strategies.Waiter) any { return w.Holder.Label },
	"metadata": func(w strategies.Waiter) any { return w.Holder.Metadata },
	"holding":  func(w strategies.Waiter) any { return strings.Join(w.Holding, " ") },
	"waited":   func(w strategies.Waiter) any { return ceil(w.Waited) },
	"behind":   func(w strategies.Waiter) any { return w.Behind },
	"slots":    func(w strategies.Waiter) any { return int64(max(1, w.Slots)) },
	"shared":   func(w strategies.Waiter) any { return w.Shared },
}

// Values are what the statements about a request bind.
func (s *Store) Values(r strategies.Request) databases.Values {
	return callColumns.of(call{Request: &r, store: s})
}

// batchValues are what a statement about several requests binds, whose keys are nil if they have none.
func (s *Store) batchValues(statement databases.Statement, requests []strategies.Request, keys []any) databases.Values {
	calls := make([]call, len(requests))
	process, durable, allAsynchronous, promise := "", false, true, int64(0)

	for i := range requests {
		calls[i] = call{Request: &requests[i], store: s}
		process, durable = cmp.Or(process, requests[i].Process), durable || requests[i].DurableRelease
		allAsynchronous = allAsynchronous && asynchronous(requests[i])
		promise = max(promise, s.promised(requests[i]))

		if keys != nil {
			calls[i].key = keys[i]
		}
	}

	values := callColumns.ofAll(statement, calls)
	values["process"], values["durable"] = process, durable              // all are of one process
	values["promise"], values["asynchronous"] = promise, allAsynchronous // what suits all

	return values
}

func (c columns[T]) of(one T) databases.Values {
	values := make(databases.Values, len(c)+len(c)/2)
	for name, column := range c {
		values[name] = column(one)
	}

	return values
}

// ofAll are the values of the first, and what a statement binds of all.
func (c columns[T]) ofAll(statement databases.Statement, all []T) databases.Values {
	values := c.of(all[0])

	for _, arg := range statement.Args {
		if name, ok := strings.CutPrefix(arg, "each_"); ok {
			if column := c[name]; slices.Contains(statement.Args, name) && same(all, column) {
				values[arg] = "{}"
			} else {
				values[arg] = array(all, column)
			}
		} else if arg == "calls" {
			values[arg] = c.objects(statement, all, values)
		}
	}

	return values
}

// objects is the text of what tells each of them, and of what else a statement binds if it is not that of the first: nearly
// always nothing.
func (c columns[T]) objects(statement databases.Statement, all []T, first databases.Values) string {
	objects := make([]databases.Values, len(all))
	for i := range objects {
		objects[i] = make(databases.Values)
	}

	for name, column := range c {
		tells := name == "name" || name == "owner" || name == "id" || name == "key"
		if !tells && !slices.Contains(statement.Args, name) {
			continue
		}

		for i, one := range all {
			if value := column(one); tells && value != nil || value != first[name] && name != "promise" {
				objects[i][name] = value
			}
		}
	}

	return JSON(objects)
}

// same says whether a column has one value for all.
func same[T any](all []T, column func(T) any) bool {
	first := column(all[0])

	return !slices.ContainsFunc(all[1:], func(one T) bool { return column(one) != first })
}

// array is the text of an array of a column's values.
func array[T any](all []T, column func(T) any) string {
	b := []byte{'{'}

	for i, one := range all {
		if i > 0 {
			b = append(b, ',')
		}

		if text, ok := column(one).(string); ok {
			b = append(append(append(b, '"'), quoteElement.Replace(text)...), '"')
		} else {
			b = fmt.Append(b, column(one))
		}
	}

	return string(append(b, '}'))
}

// quoteElement escapes what has a meaning between the quotes of an array's element
// (https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO).
var quoteElement = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// Array is the text of an array of keys.
func Array(keys []any) string { return array(keys, func(key any) any { return key }) }

// JSON is the text of strings and numbers, or of what consists of them, which always have a form in JSON.
func JSON(value any) string {
	text, _ := json.Marshal(value)

	return string(text)
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// lease is what the database adds to its clock for a lease. A clock that shows only
// what began last, a millisecond for example, would end one that begins within it as
// much too early.
func (s *Store) lease(d time.Duration) int64 { return ceil(d + s.sql.Resolution) }

// ceil returns microseconds, rounded up: with a Tuning.ClockDrift of next to nothing the database
// would otherwise end a lease before its holder stops to trust it.
func ceil(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }
