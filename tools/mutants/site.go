package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"hash/fnv"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// site is one change that could be made.
type site struct {
	pkg       *pkg
	file, fn  string // relative to the top; Type.Method or Func
	kind      string
	line, col int // of the statement or expression
	before    string
	after     string
	ordinal   int // among the same kind and text of the function
	edits     []edit
	race      bool // only the race detector would notice
}

// edit replaces the bytes from begin to end of a file.
type edit struct {
	begin, end int
	text       string
}

// name stays the same as long as the function keeps these words: no line numbers.
func (s *site) name() string {
	return fmt.Sprintf("%s %s %s %d: %s", s.file, s.fn, s.kind, s.ordinal, s.before)
}

func (s *site) place() string  { return fmt.Sprintf("%s:%d", s.file, s.line) }
func (s *site) change() string { return fmt.Sprintf("%s: %s -> %s", s.kind, s.before, s.after) }

func (s *site) rank(seed uint64) uint64 { return hash(seed, s.name()) }

func hash(seed uint64, text string) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s", seed, text)
	x := h.Sum64() // FNV mixes its last bytes badly: finish as splitmix64 does
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// apply returns the file with the change.
func (s *site) apply() ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(s.pkg.Dir, filepath.Base(s.file)))
	if err != nil {
		return nil, err
	}
	slices.SortFunc(s.edits, func(a, b edit) int { return b.begin - a.begin })
	for _, e := range s.edits {
		data = slices.Concat(data[:e.begin], []byte(e.text), data[e.end:])
	}
	return data, nil
}

// queue has the changes of a package in the order of the seed: the first that
// compiles is made.
type queue struct{ sites []*site }

// choose takes n changes of all packages. Packages are laid end to end, each as long
// as the square root of its sites, and n points at equal distances fall on them.
func choose(packages map[string]*pkg, seed uint64, n int) []queue {
	var list []*pkg
	var whole float64
	for _, p := range packages {
		if p.mutable() && len(p.sites()) > 0 {
			list = append(list, p)
			whole += math.Sqrt(float64(len(p.sites())))
		}
	}
	slices.SortFunc(list, func(a, b *pkg) int { return strings.Compare(a.ImportPath, b.ImportPath) })
	step := whole / float64(n)
	point := step * float64(seed*0x9e3779b97f4a7c15>>11) / (1 << 53)
	var chosen []queue
	var end float64
	for _, p := range list {
		end += math.Sqrt(float64(len(p.sites())))
		count := 0
		for ; point < end && len(chosen)+count < n; point += step {
			count++
		}
		sites := mixed(p.sites(), seed)
		for i := range count { // each its own candidates, so that no two meet
			var mine []*site
			for j := i; j < len(sites); j += count {
				mine = append(mine, sites[j])
			}
			chosen = append(chosen, queue{mine})
		}
	}
	// Those with few dependencies are compiled and tested fastest.
	slices.SortStableFunc(chosen, func(a, b queue) int { return len(a.sites[0].pkg.Deps) - len(b.sites[0].pkg.Deps) })
	return chosen
}

// mixed puts sites into the order of the seed, every kind in turn: by number alone
// nearly all would be conditions, and hardly any a lock.
func mixed(sites []*site, seed uint64) []*site {
	kinds := map[string][]*site{}
	for _, s := range sites {
		kinds[s.kind] = append(kinds[s.kind], s)
	}
	var turn [][]*site
	for _, list := range kinds {
		slices.SortFunc(list, func(a, b *site) int { return cmp.Compare(a.rank(seed), b.rank(seed)) })
		turn = append(turn, list)
	}
	first := func(list []*site) uint64 { return hash(seed, list[0].pkg.ImportPath+list[0].kind) }
	slices.SortFunc(turn, func(a, b []*site) int { return cmp.Compare(first(a), first(b)) })
	var all []*site
	for i := 0; len(all) < len(sites); i++ {
		for _, list := range turn {
			if i < len(list) {
				all = append(all, list[i])
			}
		}
	}
	return all
}

// finder collects the sites of one file.
type finder struct {
	p     *pkg
	file  string
	set   *token.FileSet
	src   []byte
	fn    string
	seen  map[string]int
	sites []*site
}

func find(p *pkg, name string) ([]*site, error) {
	src, err := os.ReadFile(filepath.Join(p.Dir, name))
	if err != nil {
		return nil, err
	}
	f := &finder{p: p, file: filepath.ToSlash(filepath.Join(p.rel(), name)), set: token.NewFileSet(), src: src, seen: map[string]int{}}
	tree, err := parser.ParseFile(f.set, name, src, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(tree) {
		return nil, nil
	}
	for _, d := range tree.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		f.fn = fn.Name.Name
		if fn.Recv != nil && len(fn.Recv.List) == 1 {
			f.fn = strings.Trim(f.text(fn.Recv.List[0].Type), "*") + "." + f.fn
		}
		f.locks(fn)
		ast.Inspect(fn.Body, func(n ast.Node) bool { f.node(n); return true })
	}
	return f.sites, nil
}

func (f *finder) offset(p token.Pos) int { return f.set.Position(p).Offset }

func (f *finder) text(n ast.Node) string {
	return string(bytes.Join(bytes.Fields(f.src[f.offset(n.Pos()):f.offset(n.End())]), []byte(" ")))
}

func (f *finder) add(kind string, at ast.Node, before, after string, race bool, edits ...edit) {
	where := f.set.Position(at.Pos())
	key := f.fn + "\x00" + kind + "\x00" + before
	f.seen[key]++
	f.sites = append(f.sites, &site{
		pkg: f.p, file: f.file, fn: f.fn, kind: kind, line: where.Line, col: where.Column,
		before: before, after: after, ordinal: f.seen[key], edits: edits, race: race,
	})
}

// flips are the comparisons with the bound moved, or turned round.
var flips = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL,
}

func (f *finder) node(n ast.Node) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if to, ok := flips[n.Op]; ok {
			begin := f.offset(n.OpPos)
			after := f.text(n.X) + " " + to.String() + " " + f.text(n.Y)
			f.add("compare", n, f.text(n), after, false, edit{begin, begin + len(n.Op.String()), to.String()})
		}
		f.offByOne(n)
	case *ast.IfStmt:
		begin, end := f.offset(n.Cond.Pos()), f.offset(n.Cond.End())
		cond := string(f.src[begin:end])
		f.add("negate", n.Cond, f.text(n.Cond), "!("+f.text(n.Cond)+")", false, edit{begin, begin, "!("}, edit{end, end, ")"})
		if n.Else == nil && leaves(n.Body) {
			f.add("skip", n.Cond, "if "+f.text(n.Cond), "if false", false, edit{begin, end, "false && (" + cond + ")"})
		}
	case *ast.ReturnStmt:
		if len(n.Results) == 0 {
			return
		}
		last, ok := n.Results[len(n.Results)-1].(*ast.Ident)
		if ok && (last.Name == "err" || strings.HasSuffix(last.Name, "Err")) {
			f.add("error", n, f.text(n), strings.TrimSuffix(f.text(n), last.Name)+"nil", false, edit{f.offset(last.Pos()), f.offset(last.End()), "nil"})
		}
	}
}

// offByOne adds one to a number that is added, subtracted or compared with.
func (f *finder) offByOne(n *ast.BinaryExpr) {
	switch n.Op {
	case token.ADD, token.SUB, token.LSS, token.LEQ, token.GTR, token.GEQ:
	default:
		return
	}
	number, ok := n.Y.(*ast.BasicLit)
	if !ok || number.Kind != token.INT {
		return
	}
	value, err := strconv.ParseInt(number.Value, 0, 62)
	if err != nil {
		return
	}
	more := strconv.FormatInt(value+1, 10)
	f.add("off-by-one", n, f.text(n), strings.TrimSuffix(f.text(n), number.Value)+more, false, edit{f.offset(number.Pos()), f.offset(number.End()), more})
}

// leaves says whether a block ends by leaving: such an if is a check.
func leaves(b *ast.BlockStmt) bool {
	if len(b.List) == 0 {
		return false
	}
	switch last := b.List[len(b.List)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	case *ast.ExprStmt:
		call, ok := last.X.(*ast.CallExpr)
		if !ok {
			return false
		}
		name, ok := call.Fun.(*ast.Ident)
		return ok && name.Name == "panic"
	}
	return false
}

// locks drops what a function takes and gives back of one lock, both sides.
func (f *finder) locks(fn *ast.FuncDecl) {
	type lock struct {
		first  ast.Node
		taken  int
		edits  []edit
		before string
	}
	found := map[string]*lock{}
	var order []string
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		var call *ast.CallExpr
		switch n := n.(type) {
		case *ast.ExprStmt:
			call, _ = n.X.(*ast.CallExpr)
		case *ast.DeferStmt:
			call = n.Call
		}
		if call == nil || len(call.Args) > 0 {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains([]string{"Lock", "Unlock", "RLock", "RUnlock"}, sel.Sel.Name) {
			return true
		}
		key := f.text(sel.X)
		l := found[key]
		if l == nil {
			l = &lock{first: n, before: f.text(call)}
			found[key] = l
			order = append(order, key)
		}
		if sel.Sel.Name == "Lock" || sel.Sel.Name == "RLock" {
			l.taken++
		}
		l.edits = append(l.edits, edit{f.offset(call.Pos()), f.offset(call.End()), "func() {}()"})
		return true
	})
	for _, key := range order {
		if l := found[key]; l.taken > 0 && len(l.edits) > l.taken {
			f.add("lock", l.first, l.before, "no lock", true, l.edits...)
		}
	}
}
