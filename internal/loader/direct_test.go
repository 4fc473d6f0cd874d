package loader

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// stories is a file of uint16 tokens, of documents that end in 7, some of which
// are too long to go with others.
func stories(t testing.TB) string {
	t.Helper()
	var b []byte
	for i, n := range []int{5, 1, 40000, 12, 7, 300, 2, 35000, 9, 4, 1000, 3, 66, 8} {
		for j := range n - 1 {
			b = binary.LittleEndian.AppendUint16(b, uint16(100+(i*31+j)%500))
		}
		b = binary.LittleEndian.AppendUint16(b, 7)
	}
	path := filepath.Join(t.TempDir(), "stories.bin")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// fillBy makes readers fill the samples of a loader that has no pass yet, or lanes.
func fillBy(l *Loader, readers bool) {
	l.shared.mu.Lock() // idle lanes look for work already
	defer l.shared.mu.Unlock()
	l.choose(readers)
}

// readTakes makes the readers believe that one read takes so long, which decides how many
// samples a bunch has.
func readTakes(l *Loader, each time.Duration) {
	l.crew.(readers).small.ReadTime.Store(int64(each))
}

// Samples that readers fill themselves come out as those that lanes fill, in every
// form of a batch, however many go together.
func TestSmallSamplesComeOutTheSame(t *testing.T) {
	s := ground(t)
	path := stories(t)
	eos := int64(7)
	documents := Dataset{Path: Paths{path}, DType: "uint16", Window: Window{Documents: true, EOS: &eos}}
	windows := Dataset{Path: Paths{path}, DType: "uint16", Window: Window{Length: 100, Next: true, Stride: 70}}
	specs := map[string]Spec{
		"views":  {Dataset: windows, Fields: fieldsOf(t, `[{"name": "x", "from": "tokens", "dtype": "int64", "view": [null, -1]}, {"name": "y", "from": "tokens", "dtype": "int64", "view": [1, null]}]`), Batch: BatchSpec{Size: 50}},
		"ragged": {Dataset: documents, Batch: BatchSpec{Size: 3}},
		"padded": {Dataset: documents, Fields: fieldsOf(t, `[{"name": "tokens", "dtype": "int32", "batch": "padded", "pad": {"value": -1}}]`), Batch: BatchSpec{Size: 3}},
		"pack":   {Dataset: documents, Fields: fieldsOf(t, `[{"name": "tokens", "dtype": "int64"}]`), Batch: BatchSpec{Size: 2, Pack: 512, Lengths: Lengths{Field: "tokens"}}},
		"bucket": {Dataset: documents, Fields: fieldsOf(t, `[{"name": "tokens", "batch": "padded"}]`), Batch: BatchSpec{Tokens: 40000, Lengths: Lengths{Field: "tokens"}}},
	}
	for name, spec := range specs {
		t.Run(name, func(t *testing.T) {
			spec.Order.Shuffle = "full"
			lanes, readers := open(t, s, spec), open(t, s, spec)
			if !readers.small {
				t.Fatal("lanes fill them")
			}
			fillBy(lanes, false)
			want := texts(walkAll(t, lanes, 1, 0, 0))
			for _, pace := range []time.Duration{1, 66 * time.Microsecond, time.Second} { // as many as fit, three, and one
				readTakes(readers, pace)
				if got := texts(walkAll(t, readers, 1, 0, 0)); !slices.Equal(got, want) {
					t.Errorf("reads that take %v: another stream", pace)
				}
			}
		})
	}
}

// broken is a source in which some offsets cannot be read: because of damage, or
// because of the storage.
type broken struct {
	source.Source
	code errs.Code
	from int64
	to   int64
	hits *atomic.Int64
}

func (b broken) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	if off < b.to && b.from < off+int64(len(p)) && obj.Version != "" && len(p) < 1000 {
		b.hits.Add(1)
		return errs.New(b.code, "broken").At(errs.Where{File: obj.Name, Offset: errs.Known(off)})
	}
	return b.Source.ReadAt(ctx, obj, p, off)
}

// A sample that fails on that way is skipped, replaced or told as any other, alone.
func TestSmallSamplesThatFail(t *testing.T) {
	s := ground(t)
	path := filepath.Join(t.TempDir(), "train.bin")
	if err := os.WriteFile(path, random(4000, 2), 0o644); err != nil {
		t.Fatal(err)
	}
	spec := Spec{Dataset: Dataset{Path: Paths{path}, DType: "uint16", Window: Window{Length: 50}}, Batch: BatchSpec{Size: 16}}
	wrap := func(code errs.Code) Options {
		return Options{Wrap: func(src source.Source) source.Source {
			return broken{Source: src, code: code, from: 1230, to: 1231, hits: new(atomic.Int64)}
		}}
	}
	const bad = 1230 / 100
	for _, code := range []errs.Code{errs.Damaged, errs.Unreadable} {
		for _, policy := range []string{Fail, Skip, Replace} {
			spec.OnBad.Policy = policy
			l := open(t, s, spec, wrap(code))
			p, err := l.Pass(0, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			b, err := p.Next(context.Background(), 0)
			if code == errs.Unreadable || policy == Fail {
				if e := errs.From(err); e.Code != code || e.Where.Sample.Or(-1) != bad || e.Where.Shard != path {
					t.Errorf("%s, %s: %v at %+v", code, policy, err, e.Where)
				}
				p.Cancel()
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(b.Bad) != 1 || b.Bad[0].Sample != bad || (b.Bad[0].Put >= 0) != (policy == Replace) {
				t.Errorf("%s: %+v", policy, b.Bad)
			}
			for r, row := range rowsOf(b, b.Columns[0], mem.Uint16) {
				if r != bad && !slices.Equal(row, random(4000, 2)[100*r:100*r+100]) {
					t.Errorf("%s: row %d is another", policy, r)
				}
			}
			b.Release()
			p.Cancel()
		}
	}
}

// A file that is written to or cut while its windows are copied from a map is told as
// changed, and no batch has anything but what was indexed.
func TestSmallSamplesOfAFileThatChanges(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"written to": func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt(make([]byte, 200_000), 0)
			return errors.Join(err, f.Close())
		},
		"cut": func(path string) error { return os.Truncate(path, 300) },
	} {
		t.Run(name, func(t *testing.T) {
			s := ground(t)
			path, was := filepath.Join(t.TempDir(), "train.bin"), random(200_000, 2)
			if err := os.WriteFile(path, was, 0o644); err != nil {
				t.Fatal(err)
			}
			past := time.Now().Add(-time.Hour) // no write falls into the tick of the last
			if err := os.Chtimes(path, past, past); err != nil {
				t.Fatal(err)
			}
			l := open(t, s, Spec{Dataset: Dataset{Path: Paths{path}, DType: "uint16", Window: Window{Length: 100, Stride: 1}}, Batch: BatchSpec{Size: 64}, Order: Order{Shuffle: "full"}})
			p, err := l.Pass(0, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Cancel()
			for n := 0; ; n++ {
				if n == 100 {
					if err := change(path); err != nil {
						t.Fatal(err)
					}
				}
				b, err := p.Next(context.Background(), 0)
				if err != nil {
					if e := errs.From(err); n < 100 || e.Code != errs.Changed || e.Where.File+e.Where.Shard == "" {
						t.Errorf("batch %d: %v at %+v", n, err, e.Where)
					}
					return
				}
				ids := b.Slot.Mem[b.Columns[slices.IndexFunc(b.Columns, func(c batch.Column) bool { return c.Name == batch.IDs })].Off:]
				for r, row := range rowsOf(b, b.Columns[0], mem.Uint16) {
					id := binary.LittleEndian.Uint64(ids[8*r:])
					if !slices.Equal(row, was[2*id:2*id+200]) {
						t.Fatalf("batch %d, window %d: other tokens", n, id)
					}
				}
				b.Release()
			}
		})
	}
}

// Passes that are given up and loaders that are closed while readers work for them
// leave nothing open: ground and open check that.
func TestSmallSamplesGivenUp(t *testing.T) {
	s := ground(t)
	path := stories(t)
	spec := Spec{Dataset: Dataset{Path: Paths{path}, DType: "uint16", Window: Window{Length: 20, Stride: 1}}, Batch: BatchSpec{Size: 64}, Order: Order{Shuffle: "full"}}
	for i := range 30 {
		l := open(t, s, spec)
		for range 3 {
			p, err := l.Pass(0, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			for range i % 4 {
				b, err := p.Next(context.Background(), 0)
				if err != nil {
					t.Fatal(err)
				}
				b.Release()
			}
			p.Cancel()
		}
		if _, err := l.Pass(1, 0, 0); err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}

// A batch of small samples costs no heap a sample.
func TestSmallSamplesCostNoHeap(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector allocates")
	}
	spec := Spec{Dataset: Dataset{Path: Paths{stories(t)}, DType: "uint16", Window: Window{Length: 20, Stride: 1}}, Batch: BatchSpec{Size: 256}, Order: Order{Shuffle: "full"}}
	l := open(t, ground(t), spec)
	walkSome := func(p *Pass, n int) {
		for range n {
			b, err := p.Next(context.Background(), 0)
			if err != nil {
				t.Fatal(err)
			}
			b.Release()
		}
	}
	p, err := l.Pass(0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Cancel()
	walkSome(p, 50)
	if n := testing.AllocsPerRun(5, func() { walkSome(p, 20) }) / 20; n > 64 {
		t.Errorf("%.0f allocations a batch of 256", n)
	}
}
