package loader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/compose"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// end walks a pass to its error or its end.
func end(t *testing.T, l *Loader) (got []seen, err error) {
	t.Helper()
	p, err := l.Pass(0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Cancel()
	for {
		b, err := p.Next(context.Background(), 20*time.Second)
		if err != nil {
			return got, err
		}
		got = append(got, copyBatch(l, b))
		b.Release()
	}
}

// One damaged sample, of every kind, in a folder and in a shard.
func TestDamageIsNamedSkippedOrReplaced(t *testing.T) {
	const n, broken = 30, 17
	jpeg := func(t *testing.T) []byte {
		b, err := os.ReadFile("../../testdata/photos/chelsea.jpg")
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	kinds := map[string]func(t *testing.T) []byte{
		"empty file":     func(*testing.T) []byte { return nil },
		"random bytes":   func(*testing.T) []byte { return bytes.Repeat([]byte("no picture "), 50) },
		"truncated JPEG": func(t *testing.T) []byte { b := jpeg(t); return b[:len(b)/2] },
		"truncated PPM":  func(*testing.T) []byte { return picture(broken)[:40] },
		"absurd header":  func(*testing.T) []byte { return []byte("P6 60000 60000 255\n123") },
	}
	for name, body := range kinds {
		for _, policy := range []string{Fail, Skip, Replace} {
			t.Run(name+"/"+policy, func(t *testing.T) {
				s := ground(t)
				root := pictures(t, n)
				path := filepath.Join(root, "class1", fmt.Sprintf("%06d.ppm", broken))
				if err := os.WriteFile(path, body(t), 0o644); err != nil {
					t.Fatal(err)
				}
				spec := imageSpec(root)
				spec.Fields[0].Transform = ops(t, `[{"op":"Resize","size":[6,8]}]`)
				spec.OnBad.Policy = policy
				checkDamage(t, open(t, s, spec), policy, path, broken, n)
			})
		}
	}
}

func checkDamage(t *testing.T, l *Loader, policy, path string, broken int64, n int) {
	t.Helper()
	got, err := end(t, l)
	if policy == Fail {
		e := errs.From(err)
		if errs.Classes[e.Code].Python != "DataError" || e.Where.Sample.Or(-1) != broken || e.Where.File != path || e.Hint == "" {
			t.Fatalf("told as %v (code %s, hint %q), want file %s and sample %d", err, e.Code, e.Hint, path, broken)
		}
		return
	}
	rows, invalid := 0, 0
	var bad []compose.Bad
	for _, b := range got {
		rows += len(b.IDs)
		bad = append(bad, b.Bad...)
		for r, id := range b.IDs {
			if !b.Valid[r] {
				invalid++
				if id != broken {
					t.Errorf("sample %d is marked", id)
				}
				continue
			}
			if got := int64(b.Pixels[r][0]); got != id {
				t.Errorf("row of sample %d holds picture %d", id, got)
			}
		}
	}
	if rows != n || len(bad) != 1 || bad[0].Sample != broken || errs.From(bad[0].Err).Where.File != path {
		t.Errorf("%d rows of %d, reported: %v", rows, n, bad)
	}
	if policy == Skip && (invalid != 1 || bad[0].Put != -1) || policy == Replace && (invalid != 0 || bad[0].Put < 0) {
		t.Errorf("%s: %d rows are marked, put %d", policy, invalid, bad[0].Put)
	}
}

func TestVanishedUnreadableAndChangedFiles(t *testing.T) {
	const n, broken = 24, 5
	for name, c := range map[string]struct {
		hurt func(path string) error
		code errs.Code
	}{
		"vanished":  {os.Remove, errs.Changed},
		"grown":     {func(p string) error { return os.WriteFile(p, append(picture(broken), 0), 0o644) }, errs.Changed},
		"rewritten": {func(p string) error { return os.WriteFile(p, picture(broken+1), 0o644) }, errs.Changed},
		"a folder":  {func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o755)) }, errs.Unreadable},
	} {
		t.Run(name, func(t *testing.T) {
			s := ground(t)
			root := pictures(t, n)
			l := open(t, s, imageSpec(root))
			path := filepath.Join(root, "class0", fmt.Sprintf("%06d.ppm", broken))
			if err := c.hurt(path); err != nil {
				t.Fatal(err)
			}
			_, err := end(t, l)
			e := errs.From(err)
			if e.Code != c.code || e.Where.Sample.Or(-1) != broken || e.Where.File != path || e.Hint == "" {
				t.Fatalf("told as %v (code %s, hint %q)", err, e.Code, e.Hint)
			}
			if c.code != errs.Changed {
				return
			}
			again := open(t, s, imageSpec(root)) // the index was built anew
			if _, err := end(t, again); errs.CodeOf(err) == errs.Changed {
				t.Errorf("after a new start: %v", err)
			}
		})
	}
}

func TestLimitsOfOnBad(t *testing.T) {
	s := ground(t)
	root := pictures(t, 300)
	for id := range 30 {
		if err := os.WriteFile(filepath.Join(root, "class0", fmt.Sprintf("%06d.ppm", id*3)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	spec := imageSpec(root)
	spec.Fields[0].Transform = ops(t, `[{"op":"Resize","size":[6,8]}]`)
	spec.OnBad = OnBad{Policy: Skip, MaxBad: 7}
	if _, err := end(t, open(t, s, spec)); errs.CodeOf(err) != errs.BadLimit || errs.From(err).Where.File == "" {
		t.Errorf("max_bad: %v", err)
	}
	spec.OnBad = OnBad{Policy: Replace, MaxBadRate: 0.05}
	if _, err := end(t, open(t, s, spec)); errs.CodeOf(err) != errs.BadLimit {
		t.Errorf("max_bad_rate: %v", err)
	}
	few := spec
	few.OnBad = OnBad{Policy: Skip, MaxBadRate: 0.5}
	few.Dataset.Path = Paths{pictures(t, 20)}
	for id := range 11 {
		path := filepath.Join(few.Dataset.Path[0], fmt.Sprintf("class%d", id*3/20), fmt.Sprintf("%06d.ppm", id))
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := end(t, open(t, s, few)); errs.CodeOf(err) != errs.BadLimit || len(got) != 4 {
		t.Errorf("max_bad_rate on few samples: after %d batches, %v", len(got), err)
	}
	spec.OnBad = OnBad{Policy: Replace, MaxBadRate: 0.5}
	a, b := walk(t, open(t, s, spec), 0, 0, 0), walk(t, open(t, s, spec), 0, 0, 0)
	if len(a) != 75 || digest(a) != digest(b) {
		t.Errorf("replacing is not reproducible, or %d batches", len(a))
	}
	for _, batch := range a { // a replacement that is bad too is not counted again
		if places := map[int64]bool{}; len(batch.Bad) > 0 {
			for _, x := range batch.Bad {
				places[x.Place] = true
			}
			if len(places) != len(batch.Bad) {
				t.Errorf("step %d: %d places are listed %d times", batch.Step, len(places), len(batch.Bad))
			}
		}
	}
	spec.Workers = 7
	if digest(walk(t, open(t, s, spec), 0, 0, 0)) != digest(a) {
		t.Error("lanes change what replaces a sample")
	}
}

// If nothing in a batch is good, a sample from elsewhere replaces it, and is
// marked; if nothing in the dataset is good, that is an error.
func TestNoGoodSampleInABatch(t *testing.T) {
	s := ground(t)
	root := pictures(t, 12)
	empty := func(from, to int) {
		for id := from; id < to; id++ {
			path := filepath.Join(root, fmt.Sprintf("class%d", id/4), fmt.Sprintf("%06d.ppm", id))
			if err := os.WriteFile(path, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	empty(0, 4)
	for _, size := range []int{1, 4} {
		spec := imageSpec(root)
		spec.Order.Shuffle = order.None
		spec.OnBad.Policy = Skip
		spec.Batch.Size = size
		got, err := end(t, open(t, s, spec))
		if !errors.Is(err, io.EOF) || len(got) != 12/size {
			t.Fatalf("batches of %d: %d of them, %v", size, len(got), err)
		}
		for _, b := range got {
			for r, id := range b.IDs {
				if b.Valid[r] != (id >= 4) || id >= 4 && int64(b.Pixels[r][0]) != id || id < 4 && b.Pixels[r][0] < 4 {
					t.Errorf("batches of %d: sample %d is %v and shows %d", size, id, b.Valid[r], b.Pixels[r][0])
				}
			}
		}
	}
	empty(4, 12)
	spec := imageSpec(root)
	spec.OnBad.Policy = Skip
	if _, err := end(t, open(t, s, spec)); errs.CodeOf(err) != errs.BadLimit || errs.From(err).Hint == "" {
		t.Errorf("nothing good anywhere: %v", err)
	}
}

func TestWrongLabelsAndMissingFieldsInShards(t *testing.T) {
	s := ground(t)
	dir := shards(t, 20, 7)
	shard := filepath.Join(dir, "s-001.tar")
	b, err := os.ReadFile(shard)
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.Replace(b, append([]byte("9\n"), make([]byte, 510)...), append([]byte("x\n"), make([]byte, 510)...), 1)
	if err := os.WriteFile(shard, b, 0o644); err != nil {
		t.Fatal(err)
	}
	spec := imageSpec(dir)
	spec.Fields = []Field{{Name: "ppm", Decode: "rgb"}, {Name: "cls", Decode: "int"}}
	_, err = end(t, open(t, s, spec))
	e := errs.From(err)
	if e.Code != errs.Damaged || e.Where.Sample.Or(-1) != 9 || e.Where.Shard != shard || e.Where.Member != "000009.cls" || e.Where.Offset.Or(-1) <= 0 || e.Where.Field != "cls" {
		t.Errorf("a label that is not a number: %v", err)
	}
	if at := e.Where.Offset.Or(-1); at > 0 && !bytes.HasPrefix(b[at:], []byte("x\n")) {
		t.Errorf("offset %d holds %q", at, b[at:at+4])
	}
	spec.Fields[1].From = "clz"
	if _, err = Open(context.Background(), s, spec, Options{}); errs.CodeOf(err) != errs.Config || !strings.Contains(err.Error(), `did you mean "cls"`) {
		t.Errorf("a field that no sample has: %v", err)
	}
}

// A sample that was in work each time an engine died is a bad sample.
func TestDeadlySamples(t *testing.T) {
	s := ground(t)
	spec := imageSpec(pictures(t, 12))
	spec.OnBad.Policy = Skip
	l := open(t, s, spec, Options{Deadly: func(string) map[int64]int { return map[int64]int{3: 2, 4: 1} }})
	got, _ := end(t, l)
	var bad []int64
	for _, b := range got {
		for _, x := range b.Bad {
			bad = append(bad, x.Sample)
		}
	}
	if len(bad) != 1 || bad[0] != 3 {
		t.Errorf("samples %v were passed over, want only 3", bad)
	}
}

// What stands in for a bad sample is one of the epoch's own: not what a subset
// leaves out, and not what weights of 0 do.
func TestReplacementsAreOfTheEpoch(t *testing.T) {
	s := ground(t)
	root := pictures(t, 30)
	for id := range 30 {
		if id%3 == 0 {
			path := filepath.Join(root, fmt.Sprintf("class%d", id/10), fmt.Sprintf("%06d.ppm", id))
			if err := os.WriteFile(path, []byte("no picture"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	ok := map[int64]bool{}
	var subset, weights []float64
	for id := range 30 {
		weights = append(weights, float64(id%5/3))
		if id%5 >= 3 {
			ok[int64(id)] = true
			subset = append(subset, float64(id))
		}
	}
	for name, o := range map[string]Order{
		"subset": {Shuffle: order.Full, Subset: Numbers{List: subset}}, "weights": {Weights: Numbers{List: weights}},
		"each once": {Weights: Numbers{List: weights}, Replacement: new(false), NumSamples: 12},
	} {
		spec := imageSpec(root)
		spec.Order, spec.OnBad.Policy = o, Replace
		bad := 0
		for _, b := range walkAll(t, open(t, s, spec), 0, 0, 0) {
			bad += len(b.Bad)
			for _, id := range b.ids() {
				if !ok[id] || id%3 == 0 {
					t.Errorf("%s: sample %d came", name, id)
				}
			}
		}
		if bad == 0 {
			t.Errorf("%s: nothing was bad", name)
		}
	}
	spec, _ := newGrid(t).byLength(newGrid(t).spec(t), "tokens")
	spec.OnBad.Policy = Replace
	if e := refused(t, s, spec); !strings.Contains(e.Error(), "replace does not go with tokens") {
		t.Errorf("%v", e)
	}
}
