package judge

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/loop"
	"github.com/stoker-data/stoker/internal/tool/model"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// The rules for work that is done for every sample and need not be, and for samples that
// are not like the others.

// again is what is done for every sample, and could be done once in each worker.
type again struct {
	name    string  // of what is opened
	what    string  // is done, in words
	at      string  // the line
	text    string  // as it is written
	targets float64 // how many different things are opened
	whole   bool    // all of the file is read and parsed for one sample
	query   bool    // it searches a whole table
	others  int     // samples are made for so many ranks and workers, and one of them is kept
	cpu     float64
	waited  float64 // s a sample
}

func (a again) seconds() float64 { return a.cpu + a.waited }

// openers are calls whose result may stay open, and what to call it.
var openers = map[string]string{
	"h5py.File": "file", "zipfile.ZipFile": "archive", "tarfile.TarFile": "archive", "sqlite3.connect": "db", "lmdb.open": "env", "open": "file", "gzip.open": "file",
}

// parses reports whether a call makes objects of everything that it is given.
func parses(name string) bool {
	for _, p := range [...]string{"json.", "orjson.", "yaml.", "xml", "pickle.", "pandas.read", "pyarrow.read", "numpy.load", "numpy.npz", "numpy.loadtxt", "numpy.genfromtxt", "numpy.fromfile", "torch.load", "read"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

const (
	oftenOpened = 0.75 // share of openings that open what was opened a moment before
	perFile     = 8    // bytes read for each byte of a sample, from which on all of a file is
)

// repeats is the costliest of what is repeated; ok is false where nothing is.
func (v *view) repeats() (a again, ok bool) {
	if v.Loop.Settings.Class == evidence.OwnClass || len(v.Parts) == 0 {
		return a, false
	}
	if a, ok := v.searches(); ok {
		return a, true
	}
	if a, ok := v.discards(); ok {
		return a, true
	}
	c := v.Loop.Cost
	few := func(s evidence.Stage) bool { // and not one file for each sample of a small dataset
		n := v.Loop.Settings.Length
		if n != nil && parses(s.Name) && s.Calls.Value >= 0.5 && s.Again.Known() && s.Targets.Value <= float64(*n)/4 && c.Samples.Value >= 2*s.Targets.Value {
			return true // files of many samples each, in whatever order they come
		}
		return s.Calls.Value >= 0.5 && s.Again.Known() && s.Again.Value >= oftenOpened && (n == nil || s.Targets.Value < max(2, float64(*n)/4))
	}
	first := slices.IndexFunc(c.Stages, few) // costliest first
	if first < 0 {
		return a, false
	}
	s := c.Stages[first]
	if i := slices.IndexFunc(c.Stages, func(s evidence.Stage) bool { return few(s) && s.Name != "open" && s.Name != "read" }); i >= 0 {
		s = c.Stages[i]
	}
	a = again{name: s.Name, at: s.At, text: s.Text, targets: s.Targets.Value}
	a.whole = parses(s.Name) && s.Name != "read" || c.Read.Value >= perFile*v.Loop.SampleBytes.Value && v.Loop.SampleBytes.Known() && c.Read.Value >= 32<<10 && s.Name != "h5py.File" && s.Name != "sqlite3.connect" && s.Name != "lmdb.open"
	for _, s := range c.Stages {
		switch {
		case few(s), strings.HasPrefix(a.name, "h5py.") && (s.Name == "h5py.close" || s.Name == "h5py.Group"), a.whole && (parses(s.Name) || s.Name == "Python code"):
			own := min(s.CPU.Value, s.Wall.Value)
			a.cpu, a.waited = a.cpu+own, a.waited+max(0, s.Wall.Value-own-loop.Late(own, v.Queue()))
			if a.whole && parses(s.Name) && s.Name != "read" {
				a.name, a.at, a.text = s.Name, s.At, s.Text
			}
		}
	}
	if a.whole && a.name == "open" || a.name == "read" { // what reads on after it has no name: the line that it is in
		if f := v.Loop.Cost.Frames; len(f) > 0 && f[0].Share >= 0.2 {
			a.at = f[0].At
		}
	}
	file := "The same file"
	if f := v.Loop.Settings.Files; len(f) > 0 {
		file = filepath.Base(f[len(f)-1])
	}
	switch a.name {
	case "sqlite3.connect":
		file = "A database"
	case "lmdb.open":
		file = "An environment"
	}
	a.what = fmt.Sprintf("%s is opened again (%s) for every sample", file, a.name)
	if a.whole {
		a.what = fmt.Sprintf("All of %s is read and parsed again (%s) for every sample", file, a.name)
	}
	return a, true
}

var (
	// A query that skips rows, with its table and the column that orders them. The text is
	// a statement of Python, in which offset and limit may also be variables: in SQL a
	// number, a parameter or the end of a piece of text follows.
	anOffset = regexp.MustCompile(`(?i)\boffset\s+(?:[?:{$@\d"']|%[s(])|\blimit\s+(?:[?:{$@\d]|%[s(])[^,;"']*,`)
	aTable   = regexp.MustCompile(`(?i)\bfrom\s+["'\x60]?(\w+)`)
	anOrder  = regexp.MustCompile(`(?i)\border\s+by\s+(?:\w+\.)?["'\x60]?(\w+)["'\x60]?(\s+desc\b)?`)

	aQuery = regexp.MustCompile(`\.execute\(|\.fetch(one|all|many)\(|read_sql`)
	aWhere = regexp.MustCompile(`(?is)\bfrom\s+["'\x60]?(\w+)["'\x60]?.*?\bwhere\s+(?:\w+\.)?["'\x60]?(\w+)["'\x60]?\s*(?:=|like|in\b|is\b)`)
)

// slowQuery is seconds of a query from which on it reads more than one row by its key.
const slowQuery = 300e-6

// searches says whether a database reads a whole table for every sample.
func (v *view) searches() (a again, ok bool) {
	p := v.Part(evidence.Python)
	if r := v.Part(evidence.Read); v.Data() == loop.OfSQLite && r.Seconds() > p.Seconds() && r.Name == "read" {
		p = r
	}
	for _, f := range v.Loop.Cost.Frames {
		sql := v.Data() == loop.OfSQLite || strings.Contains(strings.ToLower(f.Text), "select ")
		if aQuery.MatchString(f.Text) && sql && f.Share >= 0.3 && f.Share*v.Sum() >= slowQuery && v.Loop.Cost.Opens.Value < 0.5 {
			by := min(1, f.Share*v.Sum()/max(p.Seconds(), 1e-9))
			return again{
				name: "query", what: fmt.Sprintf("The query takes %s per sample, as a query that searches the whole table does", show.Seconds(f.Share*v.Sum())),
				at: f.At, text: f.Text, query: true, cpu: by * p.CPU, waited: by * p.Blocked,
			}, true
		}
	}
	return a, false
}

var repeated = rule{
	verdict: Repeated,
	needs:   []need{aWait, aSample},
	holds: func(v *view) bool {
		a, ok := v.repeats()
		return ok && v.Waits() && (a.seconds() >= 0.5*v.Sum() || v.Beyond() && a.seconds() >= 0.9*v.Costliest().Seconds())
	},
	of: func(v *view) string { a, _ := v.repeats(); return a.name },
	says: func(v *view) string {
		a, _ := v.repeats()
		return fmt.Sprintf("%s: %s of the %s that a sample costs.", a.what, show.Seconds(a.seconds()), show.Seconds(v.Sum()))
	},
	why: func(v *view) []evidence.Line {
		return append(v.PartLines(), append(v.FrameLines(), v.LoopLines()...)...)
	},
	change: changeOfRepeated,
	after: func(v *view) model.Job {
		a, _ := v.repeats()
		j := v.Job
		j.CPU, j.Blocked = max(0, j.CPU-a.cpu*v.Batch), max(0, j.Blocked-a.waited*v.Batch)
		return j
	},
}

// opening takes the call that opens out of a line.
var opening = regexp.MustCompile(`((?:[\w.]+\.)?(?:File|ZipFile|TarFile|connect|open|load|loads|read_csv|read_parquet|read_json|read_pickle|read_table|parse|safe_load|loadtxt|genfromtxt)\()`)

// expression is the call in a line that opens or parses, with its arguments; fallback where
// the line was not found.
func expression(text, fallback string) string {
	at := opening.FindStringIndex(text)
	if at == nil || strings.HasSuffix(text, "...") {
		return fallback
	}
	depth := 0
	for i := at[1] - 1; i < len(text); i++ {
		switch text[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return strings.Join(strings.Fields(text[at[0]:i+1]), " ")
			}
		}
	}
	return fallback
}

// severalViews is how many pictures of one sample are common: from one more on, as many as
// there are ranks or workers are theirs.
const severalViews = 2

// discards says whether an iterable dataset parses or decodes the samples of every rank or
// worker, and then keeps its own: it makes as many for each that it delivers as there are
// ranks, workers, or both.
func (v *view) discards() (a again, ok bool) {
	s, world := v.Loop.Settings, max(1, v.Loop.World)
	if s.Kind != "iterable" {
		return a, false
	}
	for _, n := range []int{world * max(1, s.Workers), world, s.Workers} {
		for _, stage := range v.Loop.Cost.Stages {
			calls := stage.Calls.Value
			if n <= severalViews || stage.Kind != evidence.Decode && stage.Kind != evidence.Transform && !parses(stage.Name) || math.Abs(calls-float64(n)) > 0.03*float64(n) {
				continue
			}
			a = again{name: "samples of others", at: stage.At, text: stage.Text, others: n}
			a.what = fmt.Sprintf("%s runs %s times for each sample that the loader delivers: every rank and worker makes the samples of all %d, and keeps its own", stage.Name, show.Number(math.Round(10*calls)/10), n)
			for _, p := range v.Parts {
				if p.Kind != evidence.Collate {
					a.cpu, a.waited = a.cpu+p.CPU*float64(n-1)/float64(n), a.waited+p.Blocked*float64(n-1)/float64(n)
				}
			}
			return a, true
		}
	}
	return a, false
}

func changeOfRepeated(v *view) []Change {
	a, _ := v.repeats()
	line := loop.LineOnly(a.at)
	if line == "" {
		line = "__getitem__"
	}
	switch {
	case a.others > 0:
		share := "rank, world"
		if s := v.Loop.Settings; s.Workers > 1 {
			share = "rank * info.num_workers + info.id, world * info.num_workers  # info = torch.utils.data.get_worker_info()"
		}
		return []Change{{
			strings.Join([]string{"# in __iter__, before " + line + ":", "mine, shares = " + share, "if number % shares != mine:", "    continue  # not parsed and not decoded"}, "\n"),
			"number counts lines or records, which are cheap to pass over; files of which each rank reads its own are cheaper still",
		}}
	case a.query && anOffset.MatchString(a.text):
		return []Change{byKey(a.text, line)}
	case a.query:
		table, column := "samples", "key"
		if m := aWhere.FindStringSubmatch(a.text); m != nil {
			table, column = m[1], m[2]
		}
		return []Change{{
			strings.Join([]string{
				"# once, before training:",
				fmt.Sprintf("import sqlite3; db = sqlite3.connect(%q)", v.File("data.db", ".db", ".sqlite", ".sqlite3")),
				fmt.Sprintf("db.execute(\"CREATE INDEX IF NOT EXISTS %s_%s ON %s(%s)\"); db.commit()", table, column, table, column),
			}, "\n"),
			fmt.Sprintf("with an index the query finds the row directly (%s); EXPLAIN QUERY PLAN then says SEARCH instead of SCAN", line),
		}}
	case a.whole && a.name == "numpy.load" && v.Data() != loop.OfNpz:
		return []Change{{
			"self.data = " + strings.TrimSuffix(expression(a.text, "np.load(path)"), ")") + ", mmap_mode=\"r\")  # in __init__, instead of " + line,
			"mapped once; a sample then reads only its own part: np.array(self.data[i])",
		}}
	case a.whole && v.Data() == loop.OfNpz:
		return []Change{v.oneArray("concatenate")}
	case a.whole && a.name == "open":
		return []Change{{
			strings.Join([]string{"# in __init__, once:", v.readOnce(), "# and in __getitem__ take the sample from there, instead of opening the file at " + line}, "\n"),
			"forked workers share it; numbers are better kept in one NumPy array",
		}}
	case a.whole && openers[a.name] != "archive": // processes that share one would move each other's place in it
		return []Change{{
			strings.Join([]string{
				"# in __init__, once:",
				"self.everything = " + expression(a.text, "... # what "+line+" makes of the file"),
				"# and in __getitem__ take the sample from self.everything, instead of " + line,
			}, "\n"),
			"forked workers share it; a large one is better kept as NumPy arrays",
		}}
	}
	return []Change{openOnce(a, line)}
}

// openOnce leaves open what is opened again: one object, or one for each of several paths.
func openOnce(a again, line string) Change {
	call := expression(a.text, a.name+"(path)")
	if a.targets >= 2 {
		path := argument(call)
		return Change{
			strings.Join([]string{
				"self.opened = {}  # in __init__",
				fmt.Sprintf("if %s not in self.opened: self.opened[%s] = %s  # in __getitem__, instead of %s", path, path, call, line),
			}, "\n"),
			"each file is opened once in each worker, at its first sample there, and left open",
		}
	}
	name := openers[a.name]
	if name == "" {
		name = "file"
	}
	if strings.Contains(call, "self."+name) { // the script's own name for the path
		name = "open_" + name
	}
	return Change{
		strings.Join([]string{
			fmt.Sprintf("self.%s = None  # in __init__", name),
			fmt.Sprintf("if self.%s is None: self.%s = %s  # in __getitem__, instead of %s", name, name, call, line),
		}, "\n"),
		"opened once in each worker, at its first sample, and left open",
	}
}

// argument is the first argument of a call: what it opens.
func argument(call string) string {
	_, rest, _ := strings.Cut(call, "(")
	depth := 0
	for i, c := range rest {
		switch c {
		case '(', '[', '{':
			depth++
		case ',', ')', ']', '}':
			if depth == 0 {
				return strings.TrimSpace(rest[:i])
			}
			if c != ',' {
				depth--
			}
		}
	}
	return rest
}

// byKey is a query that skips rows, written so that it finds its row by a key.
func byKey(sql, line string) Change {
	table, column, order := "samples", "rowid", ""
	if m := aTable.FindStringSubmatch(sql); m != nil {
		table = m[1]
	}
	if m := anOrder.FindStringSubmatch(sql); m != nil {
		column = m[1]
		if m[2] != "" {
			order = " DESC"
		}
	}
	return Change{
		strings.Join([]string{
			fmt.Sprintf("self.keys = [k for (k,) in db.execute(\"SELECT %s FROM %s ORDER BY %s%s\")]  # once, in __init__", column, table, column, order),
			fmt.Sprintf("db.execute(\"SELECT ... FROM %s WHERE %s = ?\", (self.keys[index],))  # instead of %s", table, column, line),
		}, "\n"),
		fmt.Sprintf("OFFSET counts through all rows before it, for every sample; WHERE finds the row directly if %s is a primary key, or unique with an index", column),
	}
}

// sampled: the trainer computes which samples come next, and is slow at that. Workers have
// nothing to do meanwhile, however many there are.
var sampled = rule{
	verdict: PythonCode,
	needs:   []need{aWait},
	holds: func(v *view) bool {
		return v.Waits() && v.Loop.Settings.Workers > 0 && v.Loop.Settings.Class != evidence.OwnClass && v.sampling() >= 0.4
	},
	of: func(*view) string { return "sampler" },
	says: func(v *view) string {
		return fmt.Sprintf("The sampler runs in the trainer, and takes %s of the time in __next__, the largest part of it at %s: workers wait for it, however many there are.", show.Percent(v.sampling()), loop.LineOnly(v.Loop.Steps.Inside[0].At))
	},
	why: func(v *view) []evidence.Line {
		return append(loop.FrameLines("in __next__", v.Loop.Steps.Inside), v.LoopLines()...)
	},
	change: func(v *view) []Change {
		return []Change{{
			"order = torch.randperm(n).tolist()  # or rng.choice(n, size=n, p=weights): once per epoch, in one call\nreturn iter(order)  # in __iter__, instead of " + loop.LineOnly(v.Loop.Steps.Inside[0].At),
			"an index must cost microseconds: compute all of an epoch's at once, and whatever is the same for all of them in __init__",
		}}
	},
	after: func(v *view) model.Job {
		j := v.Job
		j.Take = max(0, j.Take-v.sampling()*v.Loop.Wait.Value)
		return j
	},
}

// sampling is the share of the time in __next__ in which the trainer runs code of the
// script's own.
func (v *view) sampling() (share float64) {
	for _, f := range v.Loop.Steps.Inside {
		share += f.Share
	}
	return min(1, share)
}

var contended = rule{
	verdict: Contention,
	needs:   []need{aWait, aSample},
	holds: func(v *view) bool {
		return v.Waits() && v.Loop.Settings.Workers > 1 && v.Part(evidence.Lock).Seconds() >= 0.3*v.Sum()
	},
	says: func(v *view) string {
		return fmt.Sprintf("Workers wait for a lock that another worker holds, for %s of a sample's time: they work one after the other.", show.Percent(v.Part(evidence.Lock).Seconds()/v.Sum()))
	},
	why: func(v *view) []evidence.Line {
		return append(v.PartLines(), append(v.FrameLines(), v.LoopLines()...)...)
	},
	change: func(v *view) []Change {
		return []Change{{"# " + cmp.Or(loop.LineOnly(v.StageOf(evidence.Lock).At), "the lock") + ": remove the lock, or hold it for less time", "code that only reads needs no lock; give each worker its own file, connection or cache"}}
	},
	after: func(v *view) model.Job { return v.Without(evidence.Lock) },
}

// longTail: few samples take most of the time.
var longTail = rule{
	verdict: FewSlow,
	needs:   []need{aWait, aSample},
	holds: func(v *view) bool {
		return v.Waits() && v.Loop.Settings.Class != evidence.OwnClass && v.tailed() && v.Loop.Cost.Tail.Time.Value >= 0.4 && !shallowHolds(v) && model.Speedup(v.Now, v.Settled(v.evened())) >= 1.15
	},
	says: func(v *view) string { return v.tailText() },
	why: func(v *view) []evidence.Line {
		return append(v.tailLines(), append(v.PartLines(), v.LoopLines()...)...)
	},
	change: changeOfTail,
	after:  (*view).evened,
}

// tailed says whether few samples take a good part of all time.
func (v *view) tailed() bool {
	t, c := v.Loop.Cost.Tail, v.Loop.Cost
	return t.Time.Known() && c.Spread != "batch" && t.Count.Value > 0 && t.Count.Value <= 0.15 && t.Time.Value >= 0.25 && c.P50.Value >= 50e-6 &&
		(len(c.Slowest) == 0 || c.Slowest[0].Seconds >= 4*c.P50.Value) && v.Sum()*v.Batch >= 0.5*c.Batch.Value
}

// evened is the loop when the slow samples cost what the others do.
func (v *view) evened() model.Job {
	t, j := v.Loop.Cost.Tail, v.Job
	left := (1 - t.Time.Value) / max(1-t.Count.Value, 1e-9)
	j.CPU, j.Blocked = j.CPU*left, j.Blocked*left
	return j
}

func (v *view) tailText() string {
	t, c := v.Loop.Cost.Tail, v.Loop.Cost
	slow := t.Time.Value / max(t.Count.Value, 1e-9) * c.Sample.Value
	return fmt.Sprintf("One sample in %.0f takes %s, while most take %s: these few take %s of the total time.", 1/max(t.Count.Value, 1e-9), show.Seconds(slow), show.Seconds(c.P50.Value), show.Percent(t.Time.Value))
}

// tailLines name the slowest samples.
func (v *view) tailLines() (out []evidence.Line) {
	for i, s := range v.Loop.Cost.Slowest {
		if i == 5 {
			break
		}
		text := fmt.Sprintf("number %d, %s", s.Sample, show.Seconds(s.Seconds))
		if s.Name != "" {
			text += ", " + s.Name
		}
		out = append(out, evidence.Line{What: "slow sample", Text: text, Source: evidence.FromHook})
	}
	return out
}

func changeOfTail(v *view) []Change {
	which := "the samples named above"
	if s := v.Loop.Cost.Slowest; len(s) > 0 {
		var numbers []string
		for _, x := range s[:min(len(s), 5)] {
			numbers = append(numbers, fmt.Sprint(x.Sample))
		}
		which = "dataset[i] for i in (" + strings.Join(numbers, ", ") + ")"
	}
	return []Change{{"# look at " + which, "find out what makes them slow (size, format, a retry, a separate code path); do that part once beforehand, or leave them out"}, morePrefetch(v)[0]}
}

func slowFew(v *view) (string, string, Change, bool) {
	what := ""
	ok := v.Waits() && v.Loop.Settings.Class != evidence.OwnClass && v.tailed() && !longTail.holds(v)
	if ok {
		what = v.tailText()
		var numbers []string
		for _, s := range v.Loop.Cost.Slowest[:min(5, len(v.Loop.Cost.Slowest))] {
			if numbers = append(numbers, fmt.Sprint(s.Sample)); s.Name != "" {
				numbers[len(numbers)-1] += " (" + s.Name + ")"
			}
		}
		if len(numbers) > 0 {
			what += " The slowest: samples " + strings.Join(numbers, ", ") + "."
		}
	}
	fix := Change{}
	if ok {
		fix = changeOfTail(v)[0]
	}
	return what, evidence.FromHook, fix, ok
}

// unevenSteps: the trainer's own business, told so that nobody looks for it in the loader.
func unevenSteps(v *view) (string, string, Change, bool) {
	s := v.Loop.Steps
	if !s.Tail.Count.Known() || s.Tail.Count.Value <= 0 || s.Tail.Count.Value > 0.2 || s.Tail.Time.Value < 0.1 || s.Most.Value < 0.02 {
		return "", "", Change{}, false
	}
	long := s.Tail.Time.Value / s.Tail.Count.Value * v.Loop.Step.Value
	often := fmt.Sprintf("One step in %.0f", 1/s.Tail.Count.Value)
	if s.Every.Known() {
		often = fmt.Sprintf("Every %.0fth step", s.Every.Value)
	}
	where := ""
	code := "# the step that takes longer"
	if len(s.Long) > 0 {
		where = ", most of that at " + s.Long[0].At
		code = "# " + loop.LineOnly(s.Long[0].At)
	}
	what := fmt.Sprintf("%s takes about %s, while most take %s%s: %s of the time of all steps. The training loop itself spends it (a checkpoint, a validation, a log); faster loading does not shorten it. Without it the loop would be at most %.2f x as fast.", often, show.Seconds(long), show.Seconds(s.P50.Value), where, show.Percent(s.Tail.Time.Value), 1/(1-min(0.99, s.Tail.Time.Value*v.Loop.Step.Value/max(v.Now, 1e-9))))
	return what, evidence.FromHook, Change{code, "do it less often, or in a separate thread or process"}, true
}

// repeatedWork is the finding, where it is not the verdict.
func repeatedWork(v *view) (string, string, Change, bool) {
	a, ok := v.repeats()
	if !ok || !v.Waits() || a.seconds() < 0.15*v.Sum() || repeated.holds(v) {
		return "", "", Change{}, false
	}
	return fmt.Sprintf("%s, at %s: %s of the %s that a sample costs.", a.what, cmp.Or(loop.LineOnly(a.at), "an unknown line"), show.Seconds(a.seconds()), show.Seconds(v.Sum())), evidence.FromHook, changeOfRepeated(v)[0], true
}

// readOnce is how to read all of a file of lines, once.
func (v *view) readOnce() string {
	path := "path"
	if f := v.Loop.Settings.Files; len(f) > 0 {
		path = fmt.Sprintf("%q", f[len(f)-1])
	}
	written := func(what string) bool {
		return slices.ContainsFunc(v.Loop.Cost.Frames, func(f evidence.Frame) bool { return strings.Contains(f.Text, what) })
	}
	switch {
	case written("csv.reader"):
		return fmt.Sprintf("self.rows = list(csv.reader(open(%s)))", path)
	case written("csv.DictReader"):
		return fmt.Sprintf("self.rows = list(csv.DictReader(open(%s)))", path)
	case written("json.loads") || strings.HasSuffix(path, ".jsonl\""):
		return fmt.Sprintf("self.rows = [json.loads(line) for line in open(%s)]", path)
	}
	return fmt.Sprintf("self.rows = open(%s).read().splitlines()", path)
}
