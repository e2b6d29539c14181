package sqllock_test

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestMutexes reads a package: which mutexes are locked while another one is, and what runs under them. It follows
// the calls of functions and methods of the package.
func TestMutexes(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		folder        string
		locks, others int // at least
	}{
		{".", 1000, 150},
		{"internal/call", 30, 3},
	} {
		t.Run(c.folder, func(t *testing.T) {
			t.Parallel()

			r := readPackage(t, c.folder)
			r.check(t)

			if r.locks < c.locks || r.others < c.others {
				t.Errorf("%d places were found that lock a mutex, and %d that call others, want all of them", r.locks, r.others)
			}
		})
	}
}

func (r *reading) check(t *testing.T) {
	t.Helper()

	written := map[nesting]bool{}
	inner := map[string][]string{}

	for _, order := range r.orders {
		for i, outers := range order[:len(order)-1] {
			for _, outer := range outers {
				for _, name := range order[i+1] {
					written[nesting{outer, name}] = true
					inner[outer] = append(inner[outer], name)
				}
			}
		}
	}

	for within, at := range r.nested {
		if !reaches(inner, within.outer, within.inner) {
			t.Errorf("%s is locked under %s: %s", within.inner, within.outer, at)
		}
	}

	for within := range written {
		if _, found := r.nested[within]; !found {
			t.Errorf("%s is never locked under %s", within.inner, within.outer)
		}
	}

	for _, at := range r.foreign {
		t.Errorf("foreign code runs under a mutex: %s", at)
	}
}

// reaches says whether an order leads from one mutex to another.
func reaches(inner map[string][]string, from, to string) bool {
	return slices.ContainsFunc(inner[from], func(next string) bool { return next == to || reaches(inner, next, to) })
}

// nesting is a mutex that is locked under another.
type nesting struct{ outer, inner string }

// reading is what is known of the package.
type reading struct {
	info  *types.Info
	fset  *token.FileSet
	funcs map[*types.Func]*summary

	orders  [][][]string // those that the comment has: one after the other, of those that may be locked there
	locks   int          // how many places lock a mutex, and how many call a strategy, a hook or a log
	others  int
	nested  map[nesting]string // and where
	foreign []string
}

// summary is what a function does, perhaps by others that it calls.
type summary struct {
	body    *ast.BlockStmt
	locks   map[string]bool
	foreign string // what it calls of a strategy, a hook or a log; empty if nothing
	calls   []*types.Func
}

func readPackage(t *testing.T, folder string) *reading {
	t.Helper()

	r := &reading{fset: token.NewFileSet(), funcs: map[*types.Func]*summary{}, nested: map[nesting]string{}}

	parsed, err := parser.ParseDir(r.fset, folder, func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }, parser.ParseComments) //nolint:staticcheck // one package, without build tags
	if err != nil {
		t.Fatal(err)
	}

	var files []*ast.File
	for _, p := range parsed {
		files = append(files, slices.Collect(maps.Values(p.Files))...)
	}

	r.info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	config := types.Config{Importer: importer.ForCompiler(r.fset, "source", nil)}

	if _, err := config.Check("github.com/sqllock/sqllock/sqllock/"+folder, r.fset, files, r.info); err != nil {
		t.Fatal(err)
	}

	for _, file := range files {
		r.read(file.Comments)

		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
				if of, ok := r.info.Defs[f.Name].(*types.Func); ok {
					r.funcs[of] = &summary{body: f.Body, locks: map[string]bool{}}
				}
			}
		}
	}

	for _, s := range r.funcs {
		w := walk{reading: r, s: s}
		w.block(s.body.List, nil)
	}

	for changed := true; changed; {
		changed = false

		for _, s := range r.funcs {
			for _, callee := range s.calls {
				changed = s.take(r.funcs[callee], callee.Name()) || changed
			}
		}
	}

	// Once more, now that it is known what calls come to.
	r.locks = 0

	for of, s := range r.funcs {
		w := walk{reading: r, s: &summary{locks: map[string]bool{}}, in: of.FullName(), reports: true}
		w.block(s.body.List, nil)
	}

	return r
}

// read finds the orders of mutexes in comments.
func (r *reading) read(comments []*ast.CommentGroup) {
	for _, group := range comments {
		for line := range strings.Lines(group.Text()) {
			if !strings.Contains(line, ".mu → ") {
				continue
			}

			var order [][]string
			for _, place := range strings.Split(strings.TrimSpace(line), " → ") {
				order = append(order, strings.Split(place, ", "))
			}

			r.orders = append(r.orders, order)
		}
	}
}

// take adds what a callee does.
func (s *summary) take(callee *summary, name string) (changed bool) {
	if callee == nil {
		return false
	}

	for mutex := range callee.locks {
		changed = changed || !s.locks[mutex]
		s.locks[mutex] = true
	}

	if s.foreign == "" && callee.foreign != "" {
		s.foreign, changed = name+": "+callee.foreign, true
	}

	return changed
}

// walk goes through a function. It tells what is held at each call.
type walk struct {
	*reading

	s       *summary
	in      string
	reports bool
}

// block returns what is held after some statements, and whether they end the function or the block around them.
func (w *walk) block(list []ast.Stmt, held []string) (after []string, ends bool) {
	for _, stmt := range list {
		if held, ends = w.stmt(stmt, held); ends {
			return held, true
		}
	}

	return held, false
}

func (w *walk) stmt(stmt ast.Stmt, held []string) (after []string, ends bool) {
	switch s := stmt.(type) {
	case *ast.BlockStmt:
		return w.block(s.List, held)
	case *ast.IfStmt:
		held = w.simple(s.Init, held)
		w.expr(s.Cond, held)

		var branches []ast.Stmt
		if branches = append(branches, s.Body); s.Else != nil {
			branches = append(branches, s.Else)
		}

		return w.branches(branches, held, s.Else == nil)
	case *ast.ForStmt:
		held = w.simple(s.Init, held)
		w.expr(s.Cond, held)
		after, _ = w.block(s.Body.List, held)

		return union(held, w.simple(s.Post, after)), false
	case *ast.RangeStmt:
		w.expr(s.X, held)
		after, _ = w.block(s.Body.List, held)

		return union(held, after), false
	case *ast.SwitchStmt:
		held = w.simple(s.Init, held)
		w.expr(s.Tag, held)

		return w.clauses(s.Body, held)
	case *ast.TypeSwitchStmt:
		return w.clauses(s.Body, w.simple(s.Init, held))
	case *ast.SelectStmt:
		return w.clauses(s.Body, held)
	case *ast.LabeledStmt:
		return w.stmt(s.Stmt, held)
	case *ast.DeferStmt:
		// An unlock that is deferred comes at the end. What else is deferred runs before it, or after.
		if w.mutex(s.Call, "Unlock") == "" {
			w.expr(s.Call, nil)
		}

		return held, false
	case *ast.GoStmt:
		w.apart(s.Call)

		return held, false
	case *ast.ReturnStmt:
		for _, result := range s.Results {
			w.expr(result, held)
		}

		return held, true
	case *ast.BranchStmt:
		return held, true
	default:
		return w.simple(stmt, held), false
	}
}

// simple is a statement without others in it. It may lock or unlock.
func (w *walk) simple(stmt ast.Stmt, held []string) []string {
	if stmt == nil {
		return held
	}

	if s, ok := stmt.(*ast.ExprStmt); ok {
		if call, ok := s.X.(*ast.CallExpr); ok {
			if mutex := w.mutex(call, "Lock"); mutex != "" {
				w.lock(mutex, held, call)

				return append(slices.Clone(held), mutex)
			}

			if mutex := w.mutex(call, "Unlock"); mutex != "" {
				return slices.DeleteFunc(slices.Clone(held), func(h string) bool { return h == mutex })
			}
		}
	}

	w.expr(stmt, held)

	return held
}

func (w *walk) branches(list []ast.Stmt, held []string, orNone bool) (after []string, ends bool) {
	ends = !orNone
	if orNone {
		after = held
	}

	for _, branch := range list {
		if left, ended := w.stmt(branch, held); !ended {
			after, ends = union(after, left), false
		}
	}

	return after, ends
}

func (w *walk) clauses(body *ast.BlockStmt, held []string) (after []string, ends bool) {
	var list []ast.Stmt

	orNone := true

	for _, clause := range body.List {
		switch c := clause.(type) {
		case *ast.CaseClause:
			for _, e := range c.List {
				w.expr(e, held)
			}

			orNone = orNone && c.List != nil
			list = append(list, &ast.BlockStmt{List: c.Body})
		case *ast.CommClause:
			w.simple(c.Comm, held)

			orNone = false
			list = append(list, &ast.BlockStmt{List: c.Body})
		}
	}

	// A break ends the clause and not what is around it.
	after, _ = w.branches(list, held, orNone)

	return union(held[:0:0], after), false
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)

	return slices.Compact(all)
}

// expr looks at the calls in an expression or a statement.
func (w *walk) expr(node ast.Node, held []string) {
	if node == nil {
		return
	}

	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			return w.call(n, held)
		case *ast.FuncLit:
			w.other().block(n.Body.List, nil) // it is called at another time

			return false
		}

		return true
	})
}

// later are functions that call what they are given at another time, or elsewhere.
var later = []string{"AfterFunc", "Go", "then", "Then", "newEnding"}

// under are functions that call what they are given while they have a mutex.
var under = map[string]string{"handOff": "turns.mu", "replace": "keeper.mu"}

// apart is what runs in a goroutine.
func (w *walk) apart(call *ast.CallExpr) { w.other().expr(call, nil) }

// other is a walk through what does not belong to the function.
func (w *walk) other() *walk {
	return &walk{reading: w.reading, s: &summary{locks: map[string]bool{}}, in: w.in, reports: w.reports}
}

// call looks at one call. It says whether the arguments are still to be looked at.
func (w *walk) call(call *ast.CallExpr, held []string) bool {
	callee, foreign := w.callee(call)

	if callee != nil && slices.Contains(later, callee.Name()) {
		w.apart(&ast.CallExpr{Fun: &ast.Ident{}, Args: call.Args})

		return false
	}

	// A function that is given to another one, or called where it is written.
	inside := held
	if callee != nil && under[callee.Name()] != "" {
		inside = append(slices.Clone(held), under[callee.Name()])
	}

	for _, part := range append(call.Args, call.Fun) {
		if lit, ok := part.(*ast.FuncLit); ok {
			w.block(lit.Body.List, inside)
		}
	}

	s := w.funcs[callee]

	switch {
	case foreign != "":
		if w.s.foreign == "" {
			w.s.foreign = foreign
		}
	case s != nil:
		w.s.calls = append(w.s.calls, callee)
		foreign = s.foreign
	}

	if s != nil {
		for mutex := range s.locks {
			w.lock(mutex, held, call)
		}
	}

	if foreign != "" && w.reports {
		w.others++
	}

	if foreign != "" && w.reports && len(held) > 0 {
		w.foreign = append(w.foreign, fmt.Sprintf("%s in %s under %s: %s", w.fset.Position(call.Pos()), w.in, held, foreign))
	}

	for _, part := range call.Args {
		if _, ok := part.(*ast.FuncLit); !ok {
			w.expr(part, held)
		}
	}

	if selector, ok := call.Fun.(*ast.SelectorExpr); ok {
		w.expr(selector.X, held)
	}

	return false
}

// lock notes that a mutex is locked.
func (w *walk) lock(mutex string, held []string, at *ast.CallExpr) {
	w.s.locks[mutex] = true
	w.locks++

	if !w.reports {
		return
	}

	for _, outer := range held {
		w.nested[nesting{outer, mutex}] = fmt.Sprintf("%s in %s", w.fset.Position(at.Pos()), w.in)
	}
}

// callee is the function or method that is called, if it is known, and what is foreign of it.
func (w *walk) callee(call *ast.CallExpr) (callee *types.Func, foreign string) {
	var id *ast.Ident

	switch fun := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		id = fun
	case *ast.SelectorExpr:
		id = fun.Sel
	case *ast.IndexExpr:
		id, _ = fun.X.(*ast.Ident)
	}

	if id == nil {
		return nil, ""
	}

	switch of := w.info.Uses[id].(type) {
	case *types.Func:
		of = of.Origin()
		signature, _ := of.Type().(*types.Signature)
		abstract := signature.Recv() != nil && types.IsInterface(signature.Recv().Type())

		switch from := of.Pkg(); {
		case from == nil:
		case from.Name() == "call" && slices.Contains([]string{"Serve", "Within", "Limited", "Bounded"}, of.Name()) && w.funcs[of] == nil:
			return of, of.FullName() // whatever it calls
		case from.Name() == "strategies" && abstract, from.Path() == "log/slog" && signature.Recv() != nil && strings.Contains(signature.Recv().Type().String(), "Logger"):
			return of, of.FullName()
		}

		return of, ""
	case *types.Var:
		// A hook, or what a batcher sends.
		if strings.HasPrefix(of.Name(), "On") || of.Name() == "Send" || of.Name() == "hook" {
			return nil, "the function " + of.Name()
		}
	}

	return nil, ""
}

// mutex is the name of the one that a call locks or unlocks; empty if it does not.
func (w *walk) mutex(call *ast.CallExpr, method string) string {
	fun, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || fun.Sel.Name != method {
		return ""
	}

	if of, ok := w.info.Uses[fun.Sel].(*types.Func); !ok || of.Pkg() == nil || of.Pkg().Path() != "sync" {
		return ""
	}

	field, ok := ast.Unparen(fun.X).(*ast.SelectorExpr)
	if !ok {
		return "local"
	}

	owner := w.info.Types[field.X].Type
	if p, ok := owner.Underlying().(*types.Pointer); ok {
		owner = p.Elem()
	}

	name := types.TypeString(owner, func(*types.Package) string { return "" })
	name, _, _ = strings.Cut(name, "[")

	return name + "." + field.Sel.Name
}
