package stoker_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	stoker "github.com/stoker-data/stoker"
)

// shards is tar shards of the given sizes. Every sample has a picture of its id,
// a class, and (7 id mod 23) bytes.
func shards(tb testing.TB, sizes ...int) string {
	tb.Helper()
	dir := tb.TempDir()
	id := 0
	for s, size := range sizes {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		add := func(ext string, body []byte) {
			h := &tar.Header{Name: fmt.Sprintf("%05d.%s", id, ext), Size: int64(len(body)), Mode: 0o644}
			_, err := 0, w.WriteHeader(h)
			if err == nil {
				_, err = w.Write(body)
			}
			if err != nil {
				tb.Fatal(err)
			}
		}
		for range size {
			add("ppm", append([]byte("P6 4 3 255\n"), bytes.Repeat([]byte{byte(id), byte(id >> 8), 9}, 12)...))
			add("cls", fmt.Appendf(nil, "%d", id%4))
			add("bin", bytes.Repeat([]byte{byte(id)}, id*7%23))
			id++
		}
		if err := errors.Join(w.Close(), os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d.tar", s)), b.Bytes(), 0o644)); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

// shardSpec is the shards in batches of 3.
func shardSpec(dir string) stoker.Spec {
	return stoker.Spec{
		Dataset: stoker.Dataset{Path: stoker.Paths{dir}},
		Fields:  []stoker.Field{{Name: "image", From: "ppm", Decode: "rgb"}, {Name: "label", From: "cls", Decode: "int"}},
		Order:   stoker.Order{Shuffle: stoker.ShuffleFull, Seed: 3},
		Batch:   stoker.BatchSpec{Size: 3},
		Workers: 2,
	}
}

func inRuns(dir string) stoker.Spec {
	spec := shardSpec(dir)
	spec.Fields = []stoker.Field{{Name: "bin"}, {Name: "label", From: "cls", Decode: "int"}}
	spec.Batch = stoker.BatchSpec{Size: 2, Pack: 8, Lengths: stoker.Lengths{Field: "bin"}, Window: 16}
	return spec
}

// receiptSpecs are streams of every kind.
func receiptSpecs(dir, more string) map[string]stoker.Spec {
	out := map[string]stoker.Spec{"full": shardSpec(dir), "runs": inRuns(dir)}
	one := func(name string, change func(s *stoker.Spec)) {
		s := shardSpec(dir)
		change(&s)
		out[name] = s
	}
	one("block", func(s *stoker.Spec) { s.Order.Shuffle, s.Order.Streams, s.Order.Window = "block", 2, 5 })
	one("weights", func(s *stoker.Spec) {
		for i := range 29 {
			s.Order.Weights.List = append(s.Order.Weights.List, float64(i%3))
		}
	})
	one("bucket", func(s *stoker.Spec) {
		s.Batch.Lengths, s.Batch.Bucket, s.Batch.Window = stoker.Lengths{Field: "bin"}, 3, 9
	})
	one("tokens", func(s *stoker.Spec) {
		s.Batch = stoker.BatchSpec{Lengths: stoker.Lengths{Field: "bin"}, Tokens: 40, Window: 9}
	})
	mix := func(name string, change func(s *stoker.Spec)) {
		one(name, func(s *stoker.Spec) {
			s.Dataset = stoker.Dataset{Mixed: []stoker.Dataset{{Path: stoker.Paths{dir}, Weight: 2}, {Path: stoker.Paths{more}}}}
			change(s)
		})
	}
	mix("mixture", func(s *stoker.Spec) { s.Mix.Stop = "all_exhausted" })
	mix("mixture, batch by batch", func(s *stoker.Spec) { s.Mix.Batches = "single" })
	mix("mixture, global batches", func(s *stoker.Spec) { s.Mix.Batches, s.Batch = "single", stoker.BatchSpec{GlobalSize: 6} })
	for _, tail := range []string{"fill", "drop"} {
		one("tail "+tail, func(s *stoker.Spec) {
			s.Order.Tail = map[string]func() stoker.Order{
				"fill": func() stoker.Order { return stoker.Order{Tail: stoker.TailFill} },
				"drop": func() stoker.Order { return stoker.Order{Tail: stoker.TailDrop} },
			}[tail]().Tail
		})
	}
	return out
}

// world is the loaders of all ranks.
func world(tb testing.TB, spec stoker.Spec, n int) (out []*stoker.Loader) {
	tb.Helper()
	for rank := range n {
		spec.Rank, spec.World = rank, n
		out = append(out, open(tb, spec))
	}
	return out
}

// train1 lets every rank take a pass of at most so many steps; 0: a whole one.
func train1(tb testing.TB, ranks []*stoker.Loader, most int) {
	tb.Helper()
	for _, l := range ranks {
		steps := 0
		for _, err := range l.Batches(tb.Context()) {
			if err != nil {
				tb.Fatal(err)
			}
			if steps++; steps == most {
				break
			}
		}
	}
}

// receipts are those of all loaders, as they come back from files.
func receipts(tb testing.TB, ranks ...*stoker.Loader) (out []stoker.Receipt) {
	tb.Helper()
	for _, l := range ranks {
		raw, err := json.MarshalIndent(l.Receipt(), "", "  ")
		if err != nil {
			tb.Fatal(err)
		}
		var r stoker.Receipt
		if err := json.Unmarshal(raw, &r); err != nil {
			tb.Fatal(err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, r.Order); err != nil {
			tb.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// An epoch in one world, half of the next, the rest of it in another world, and
// one more: all of it adds up, to the sample.
func TestReceiptsAddUp(t *testing.T) {
	dir, more := shards(t, 9, 2, 11, 7), shards(t, 8, 5)
	for name, spec := range receiptSpecs(dir, more) {
		for _, n := range [][2]int{{1, 2}, {2, 3}, {3, 1}} {
			t.Run(fmt.Sprintf("%s/%d then %d", name, n[0], n[1]), func(t *testing.T) {
				before := world(t, spec, n[0])
				train1(t, before, 0)
				train1(t, before, 2)
				after := world(t, spec, n[1])
				for _, l := range after {
					if err := l.Restore(before[0].State()); err != nil {
						t.Fatal(err)
					}
				}
				train1(t, after, 0)
				train1(t, after, 0)
				all := receipts(t, append(before, after...)...)
				v := after[0].Verify(all...)
				if !v.OK || !v.Complete || len(v.Problems) > 0 || len(v.Epochs) != 3 {
					t.Fatalf("%+v", v)
				}
				var received int64
				for _, e := range v.Epochs {
					if e.Samples != e.Planned || len(e.Covered) != 1 || e.Covered[0][0] != 0 || e.Samples == 0 {
						t.Errorf("%+v", e)
					}
					received += e.Samples
				}
				var told int64
				for _, r := range all {
					for _, p := range r.Parts {
						told += p.Samples
					}
				}
				if told != received {
					t.Errorf("%d samples in receipts, %d in the verdict", told, received)
				}
				refuses(t, after[0], all)
			})
		}
	}
}

// An epoch that was left half way is not complete, whatever its tail; the places
// that tail drop drops are not missing.
func TestVerdictsOfEpochsLeftEarly(t *testing.T) {
	dir := shards(t, 9, 11)
	for _, tail := range []stoker.Order{{Tail: stoker.TailPad}, {Tail: stoker.TailFill}, {Tail: stoker.TailDrop}} {
		spec := shardSpec(dir)
		spec.Order.Tail = tail.Tail
		for steps, complete := range map[int]bool{0: true, 1: false, 2: false} {
			ranks := world(t, spec, 2)
			train1(t, ranks, steps)
			train1(t, ranks, 0)
			if v := ranks[0].Verify(receipts(t, ranks...)...); !v.OK || v.Complete != complete {
				t.Errorf("tail %s, %d steps of the first epoch: %+v", tail.Tail, steps, v)
			}
		}
	}
}

// refuses changes the receipts in every way, and expects each to be found out.
func refuses(t *testing.T, l *stoker.Loader, good []stoker.Receipt) {
	t.Helper()
	copied := func() (out []stoker.Receipt) {
		raw, err := json.Marshal(good)
		if err == nil {
			err = json.Unmarshal(raw, &out)
		}
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if v := l.Verify(copied()...); !v.OK {
		t.Fatalf("a copy: %v", v.Problems)
	}
	for name, c := range map[string]struct {
		change func(r []stoker.Receipt) []stoker.Receipt
		says   string
	}{
		"another id": {func(r []stoker.Receipt) []stoker.Receipt {
			r[0].Parts[0].Sum.Less(0, 1)
			r[0].Parts[0].Sum.Add(0, 2)
			return r
		}, "not the same ones"},
		"one sample more": {func(r []stoker.Receipt) []stoker.Receipt {
			r[0].Parts[0].Sum.Add(77, 1)
			r[0].Parts[0].Samples++
			return r
		}, "samples were delivered, but the plan has"},
		"no receipt of a rank": {func(r []stoker.Receipt) []stoker.Receipt { return r[1:] }, ""},
		"a receipt twice":      {func(r []stoker.Receipt) []stoker.Receipt { return append(r, r[0]) }, "came 2 times"},
		"a step more": {func(r []stoker.Receipt) []stoker.Receipt {
			r[0].Parts[0].To--
			return r
		}, ""},
		"another world": {func(r []stoker.Receipt) []stoker.Receipt {
			r[0].Parts[0].World++
			return r
		}, "there is no receipt of"},
		"a world of very many": {func(r []stoker.Receipt) []stoker.Receipt {
			r[0].Parts[0].World = math.MaxInt64
			return r
		}, "and more"},
		"another seed": {func(r []stoker.Receipt) []stoker.Receipt {
			r[0].Seed++
			return r
		}, "seed"},
		"another dataset": {func(r []stoker.Receipt) []stoker.Receipt {
			r[0].Dataset = "0000"
			return r
		}, "dataset"},
		"another order": {func(r []stoker.Receipt) []stoker.Receipt {
			r[0].Order = json.RawMessage(`{"shuffle":"window","window":7}`)
			return r
		}, "order"},
		"another version": {func(r []stoker.Receipt) []stoker.Receipt {
			r[0].Version = 9
			return r
		}, "version 9"},
		"a rank outside": {func(r []stoker.Receipt) []stoker.Receipt {
			r[0].Parts[0].Rank = -1
			return r
		}, "damaged"},
		"items that are not": {func(r []stoker.Receipt) []stoker.Receipt {
			r[0].Parts[0].To = math.MaxInt64
			return r
		}, "but there are"},
		"backwards": {func(r []stoker.Receipt) []stoker.Receipt {
			r[0].Parts[0].From = r[0].Parts[0].To + 1
			return r
		}, "damaged"},
		"skipped, it says": {func(r []stoker.Receipt) []stoker.Receipt {
			r[0].Parts[0].Skipped = [][2]int64{{0, 0}}
			return r
		}, ""},
		"skipped beyond the epoch": {func(r []stoker.Receipt) []stoker.Receipt {
			r[0].Parts[0].Skipped = [][2]int64{{-5, 0}}
			return r
		}, ""},
	} {
		v := l.Verify(c.change(copied())...)
		if gap := name == "no receipt of a rank" && good[0].Parts[0].World == 1; v.Complete || v.OK != gap {
			t.Errorf("%s: %+v", name, v)
		}
		if !strings.Contains(strings.Join(v.Problems, "; "), c.says) {
			t.Errorf("%s: %q, want %q", name, v.Problems, c.says)
		}
	}
}

// What on_bad skips is in receipts, and so is padding, and they add up.
func TestReceiptsOfBadSamples(t *testing.T) {
	for _, policy := range []string{stoker.Skip, stoker.Replace} {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%d", policy, n), func(t *testing.T) {
				root := photos(t, 25)
				spec := train(root, 4)
				spec.OnBad.Policy = policy
				spec.Order.Tail = stoker.TailFill
				bad := []string{"chelsea/000.jpg", "coffee/010.jpg", "coffee/013.jpg", "rocket/023.jpg"}
				for _, name := range bad {
					if err := os.WriteFile(filepath.Join(root, name), []byte("no picture"), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				ranks := world(t, spec, n)
				train1(t, ranks, 0)
				train1(t, ranks, 0)
				all := receipts(t, ranks...)
				v := ranks[0].Verify(all...)
				if !v.OK || !v.Complete || len(v.Epochs) != 2 {
					t.Fatalf("%+v", v)
				}
				for _, e := range v.Epochs {
					if policy == stoker.Skip && (e.Skipped != 4 || e.Replaced != 0 || e.Samples != 21 || e.Planned != 21) ||
						policy == stoker.Replace && (e.Skipped != 0 || e.Replaced != 4 || e.Samples != 25) {
						t.Errorf("%+v", e)
					}
				}
				for i := range all {
					for j := range all[i].Parts {
						p := &all[i].Parts[j]
						if len(p.Replaced) > 0 {
							p.Replaced[0][2] = (p.Replaced[0][2] + 1) % 25
						}
						if len(p.Skipped) > 0 {
							p.Skipped = p.Skipped[1:]
						}
					}
				}
				if v := ranks[0].Verify(all...); v.OK {
					t.Error("lists that say less than happened verify")
				}
			})
		}
	}
}

// A bad sample of which rows hold several runs counts once, with its first; a
// run that stops between them adds up too.
func TestReceiptsOfSplitSamples(t *testing.T) {
	dir := shards(t, 9, 11, 9)
	spec := inRuns(dir)
	spec.OnBad.Policy = stoker.Skip
	for _, id := range []int{3, 13, 16, 23, 26} { // of 21, 22, 20, 0 and 21 bytes: up to three runs
		path := filepath.Join(dir, map[bool]string{true: "000.tar", false: "001.tar"}[id < 9])
		if id >= 20 {
			path = filepath.Join(dir, "002.tar")
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.Index(raw, fmt.Appendf(nil, "%05d.cls", id)) + 512
		raw[at] = 'x'
		if err := os.WriteFile(path, raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	whole := open(t, spec)
	told := map[int64]int{}
	steps := 0
	for b, err := range whole.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		steps++
		for _, bad := range b.Bad {
			told[bad.Sample]++
		}
	}
	if want := map[int64]int{3: 1, 13: 1, 16: 1, 23: 1, 26: 1}; fmt.Sprint(told) != fmt.Sprint(want) {
		t.Errorf("bad samples were told %v times, want %v", told, want)
	}
	for cut := range steps {
		for _, n := range []int{1, 2} {
			first, rest := world(t, spec, 1), world(t, spec, n)
			train1(t, first, cut+1)
			if v := first[0].Verify(receipts(t, first...)...); !v.OK {
				t.Fatalf("stopped after step %d: %v", cut, v.Problems)
			}
			for _, l := range rest {
				if err := l.Restore(first[0].State()); err != nil {
					t.Fatal(err)
				}
			}
			train1(t, rest, 0)
			v := first[0].Verify(receipts(t, append(rest, first...)...)...)
			if !v.OK || !v.Complete || v.Epochs[0].Skipped != 5 || v.Epochs[0].Samples != 24 {
				t.Fatalf("in two after step %d, then %d ranks: %+v", cut, n, v)
			}
		}
	}
}

// ids are those of a pass.
func ids(steps []step) (out [][]int64) {
	for _, s := range steps {
		out = append(out, s.IDs)
	}
	return out
}

// Skip passes over steps before a pass, in its loop, at its end; the State says
// so; what was received is the rest, and adds up.
func TestSkip(t *testing.T) {
	for _, tail := range []stoker.Order{{Tail: stoker.TailPad}, {Tail: stoker.TailDrop}} {
		spec := train(photos(t, 22), 4) // five steps and a half
		spec.Order.Tail = tail.Tail
		want := open(t, spec)
		zero, one := pass(t, want, 0), pass(t, want, 0)

		l := open(t, spec)
		skip := func(n int) {
			t.Helper()
			if err := l.Skip(n); err != nil {
				t.Fatal(err)
			}
		}
		skip(1)
		if s := l.State(); s.Position != 4 || fmt.Sprint(s.Skipped) != "[[0 0 4]]" {
			t.Fatalf("before a pass: %+v", s)
		}
		var got []step
		for b, err := range l.Batches(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, read(t, b))
			if b.Step == 2 {
				skip(1)
				skip(1)
				skip(0)
				if s := l.State(); s.Position != 20 || fmt.Sprint(s.Skipped) != "[[0 0 4] [0 12 20]]" {
					t.Fatalf("in the loop: %+v", s)
				}
			}
		}
		if !slices.EqualFunc(ids(got), ids(slices.Concat(zero[1:3], zero[5:])), slices.Equal) || len(zero) > 5 && got[2].Step != 5 {
			t.Errorf("tail %s: %v of %v", tail.Tail, ids(got), ids(zero))
		}
		skip(2) // the epoch is over: of the next
		if s := l.State(); s.Epoch != 1 || s.Position != 8 {
			t.Fatalf("tail %s, at the end: %+v", tail.Tail, s)
		}
		half := l.State()
		if got := pass(t, l, 0); !slices.EqualFunc(ids(got), ids(one[2:]), slices.Equal) || got[0].Step != 2 {
			t.Errorf("after what was skipped: %v of %v", ids(got), ids(one))
		}
		v := l.Verify(l.Receipt())
		if !v.OK || v.Complete || len(v.Epochs) != 2 || v.Epochs[1].Covered[0][0] != 8 {
			t.Errorf("%+v", v)
		}
		if err := l.Restore(half); err != nil || fmt.Sprint(l.State().Skipped) != "[[0 0 4] [0 12 20] [1 0 8]]" {
			t.Errorf("restored: %+v, %v", l.State(), err)
		}
		pass(t, l, 2) // given up
		skip(1)
		if s := l.State(); s.Epoch != 2 || s.Position != 4 {
			t.Errorf("after a pass that was given up: %+v", s)
		}
		skip(math.MaxInt)
		if s := l.State(); s.Position != 22 {
			t.Errorf("all there is: %+v", s)
		}
		if got := pass(t, l, 0); len(got) != 0 {
			t.Errorf("%d steps of an epoch that was skipped", len(got))
		}
		if err := l.Skip(-1); err == nil {
			t.Error("steps are taken back")
		}
		for range 40 {
			skip(1)
			pass(t, l, 1)
		}
		save(t, l) // stays below 1 KiB
	}
}

// Ranks that skip alike stay together, in any world.
func TestSkipOverRanks(t *testing.T) {
	spec := shardSpec(shards(t, 20, 21))
	ranks := world(t, spec, 3)
	for _, l := range ranks {
		for b, err := range l.Batches(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if b.Step == 1 {
				if err := l.Skip(2); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	v := ranks[0].Verify(receipts(t, ranks...)...)
	if !v.OK || fmt.Sprint(v.Epochs[0].Covered) != "[[0 18] [36 41]]" || v.Epochs[0].Samples != 23 {
		t.Errorf("%+v", v)
	}
}

// Explain says what a step will hold, before it comes and after, and nothing
// when there is no such step.
func TestExplain(t *testing.T) {
	dir := shards(t, 9, 2, 11, 7)
	for name, spec := range receiptSpecs(dir, shards(t, 8, 5)) {
		t.Run(name, func(t *testing.T) {
			for _, l := range world(t, spec, 2) {
				for b, err := range l.Batches(t.Context()) {
					if err != nil {
						t.Fatal(err)
					}
					e, err := l.Explain(b.Step)
					if err != nil {
						t.Fatal(err)
					}
					var want, got []int64
					for i, id := range b.IDs() {
						if id >= 0 {
							want = append(want, id)
							if e.Rows[len(want)-1].Valid != b.Valid()[i] {
								t.Errorf("step %d, row %d: valid %v", b.Step, i, e.Rows[i].Valid)
							}
						}
					}
					for _, row := range e.Rows {
						got = append(got, row.Sample)
						if row.Error != "" || row.File == "" || row.Member == "" {
							t.Errorf("%+v", row)
						}
					}
					if !slices.Equal(got, want) || e.Epoch != b.Epoch {
						t.Errorf("step %d is explained as %v, and was %v", b.Step, got, want)
					}
				}
				for _, step := range []int64{-1, 1000, math.MaxInt64, math.MaxInt64 / 3} {
					if e, err := l.Explain(step); err == nil {
						t.Errorf("step %d: %+v", step, e)
					}
				}
				_ = l.Close()
				if _, err := l.Explain(0); err == nil {
					t.Error("a closed loader explains")
				}
			}
		})
	}
}

// A batch of runs, read by Go users: dense rows of bytes, positions, and runs that
// add up to the rows.
func TestColumnsOfRuns(t *testing.T) {
	l := open(t, inRuns(shards(t, 9, 11, 9)))
	bytesOf := map[int64]int{}
	for b, err := range l.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		bin, err := b.Uint8("bin")
		if err != nil {
			t.Fatal(err)
		}
		position, err := b.Int32(stoker.PositionIDs)
		if err != nil {
			t.Fatal(err)
		}
		lens, err := b.Int32(stoker.SeqLens)
		if err != nil {
			t.Fatal(err)
		}
		rows := bin.Shape[0]
		if rows < 1 || rows > 2 || !slices.Equal(bin.Shape, []int{rows, 8}) || !slices.Equal(position.Shape, bin.Shape) || !slices.Equal(lens.Shape, []int{b.Rows}) {
			t.Fatalf("shapes %v, %v, %v; %d runs", bin.Shape, position.Shape, lens.Shape, b.Rows)
		}
		at := 0
		for run, n := range lens.Data {
			id := b.IDs()[run]
			for i := at; i < at+int(n); i++ {
				if id >= 0 && (bin.Data[i] != byte(id) || position.Data[i]-position.Data[at] != int32(i-at)) || id < 0 && bin.Data[i] != 0 {
					t.Errorf("byte %d of run %d, of sample %d: %d, position %d", i-at, run, id, bin.Data[i], position.Data[i])
				}
			}
			bytesOf[id] += int(n)
			at += int(n)
		}
		if at != rows*8 {
			t.Errorf("runs of %d bytes in %d rows", at, rows)
		}
		if _, err := b.Int64(stoker.SeqLens); err == nil || !strings.Contains(err.Error(), "int32") {
			t.Errorf("lengths as int64: %v", err)
		}
	}
	for id := range int64(29) {
		if bytesOf[id] != int(id)*7%23 {
			t.Errorf("%d bytes of sample %d", bytesOf[id], id)
		}
	}
}
