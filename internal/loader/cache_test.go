package loader

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// readCount counts the reads of stored files.
type readCount struct {
	source.Source
	n *atomic.Int64
}

func (c readCount) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	c.n.Add(1)
	return c.Source.ReadAt(ctx, obj, p, off)
}

func counted(n *atomic.Int64) Options {
	return Options{Wrap: func(src source.Source) source.Source { return readCount{src, n} }}
}

const (
	settledChain = `[{"op":"Resize","size":50},{"op":"RandomCrop","size":40},{"op":"RandomHorizontalFlip"}]`
	floatChain   = `[{"op":"Resize","size":48},{"op":"CenterCrop","size":40},{"op":"ToTensor"}]`
	randomChain  = `[{"op":"RandomResizedCrop","size":[40,32]},{"op":"RandomHorizontalFlip"}]`
)

// The cache saves reading and decoding, and changes no byte.
func TestACacheChangesNothing(t *testing.T) {
	const n = 23
	for _, data := range []struct{ name, root, from string }{{"folder", photos(t, n), "image"}, {"tar", shards(t, n, 7), "ppm"}} {
		for name, chain := range map[string]string{"settled": settledChain, "float": floatChain, "random": randomChain} {
			for _, after := range []string{"random", "decode"} {
				t.Run(data.name+"/"+name+"/"+after, func(t *testing.T) {
					spec := imageSpec(data.root)
					spec.Fields[0].Transform = ops(t, chain)
					if data.name == "tar" {
						spec.Fields[0].From = "ppm"
						spec.Fields[1].From = "cls"
						spec.Fields = append(spec.Fields, Field{Name: "text", From: "txt", Decode: "text"})
					}
					plain := open(t, ground(t), spec)
					spec.Cache = Cache{Memory: 64 << 20, After: after}
					var reads atomic.Int64
					l := open(t, ground(t), spec, counted(&reads))
					if plain.Pipeline() != l.Pipeline() {
						t.Error("a state of one cannot be resumed in the other")
					}
					for epoch := range int64(3) {
						if want, got := digest(walk(t, plain, epoch, 0, 0)), digest(walk(t, l, epoch, 0, 0)); want != got {
							t.Errorf("epoch %d differs", epoch)
						}
						if epoch == 1 { // the first epoch reads ahead of the second
							reads.Store(0)
						}
					}
					if k := reads.Load(); k != 0 {
						t.Errorf("%d reads after the second epoch", k)
					}
					if c := l.Stats().Cache; c.Samples != n || c.Full || c.Bytes <= 0 {
						t.Errorf("%+v", c)
					}
				})
			}
		}
	}
}

const patience = 5 * time.Second

// once is a source whose files are gone after one read of each: later reads hang
// until gone allows them, and fail. If two readers are at one file, the first read
// may be the next epoch's; this one's, which nobody else can do, passes after
// patience.
type once struct {
	source.Source
	mu   *sync.Mutex
	seen map[string]bool
	gone chan struct{}
}

func (o once) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	o.mu.Lock()
	again := o.seen[obj.Name]
	o.seen[strings.Clone(obj.Name)] = true
	o.mu.Unlock()
	if again {
		select {
		case <-o.gone:
			return errs.New(errs.NotFound, "it is gone").At(errs.Where{File: strings.Clone(obj.Name)})
		case <-time.After(patience):
		}
	}
	return o.Source.ReadAt(ctx, obj, p, off)
}

// The next epoch is planned before this one's last samples are kept: what it reads in
// vain it finds in the cache.
func TestACacheIsEnoughForTheNextEpoch(t *testing.T) {
	spec := imageSpec(photos(t, 23))
	spec.Fields[0].Transform = ops(t, settledChain)
	plain := open(t, ground(t), spec)
	spec.Cache = Cache{Memory: 64 << 20}
	src := once{mu: new(sync.Mutex), seen: map[string]bool{}, gone: make(chan struct{})}
	l := open(t, ground(t), spec, Options{Wrap: func(s source.Source) source.Source { src.Source = s; return src }})
	for epoch := range int64(3) {
		want := texts(walkAll(t, plain, epoch, 0, 0))
		if epoch == 1 {
			close(src.gone)
		}
		if got := texts(walkAll(t, l, epoch, 0, 0)); !slices.Equal(got, want) {
			t.Errorf("epoch %d is another", epoch)
		}
	}
}

func TestACacheKeepsToItsMemory(t *testing.T) {
	spec := imageSpec(pictures(t, 40))
	plain := open(t, ground(t), spec)
	spec.Cache = Cache{Memory: 2000}
	var reads atomic.Int64
	l := open(t, ground(t), spec, counted(&reads))
	for epoch := range int64(2) {
		if digest(walk(t, plain, epoch, 0, 0)) != digest(walk(t, l, epoch, 0, 0)) {
			t.Errorf("epoch %d differs", epoch)
		}
	}
	c := l.Stats().Cache
	if c.Bytes > 2000 || c.Samples == 0 || !c.Full {
		t.Errorf("%+v", c)
	}
	// Two epochs, and what is read ahead of the third, or of the second in vain.
	if least, most := 80-c.Samples, 80-c.Samples+2*5*4; reads.Load() < least || reads.Load() > most {
		t.Errorf("%d reads, not %d to %d", reads.Load(), least, most)
	}
}

// A picture that is damaged where no crop looks is delivered with and without a
// cache.
func TestACacheFindsNoOtherDamage(t *testing.T) {
	root := photos(t, 6)
	names, err := filepath.Glob(filepath.Join(root, "*", "*"))
	if err != nil || len(names) == 0 {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(names[2])
	if err != nil {
		t.Fatal(err)
	}
	raw = append(bytes.Clone(raw[:len(raw)*9/10]), 0xff, 0xd9)
	if err := os.WriteFile(names[2], raw, 0o644); err != nil {
		t.Fatal(err)
	}
	spec := photoSpec(t, root)
	spec.OnBad.Policy = Skip
	plain := open(t, ground(t), spec)
	spec.Cache = Cache{After: "random"}
	l := open(t, ground(t), spec)
	for epoch := range int64(2) {
		if diff := cmp.Diff(named(walk(t, plain, epoch, 0, 0)), named(walk(t, l, epoch, 0, 0))); diff != "" {
			t.Error(diff)
		}
	}
}

// named are the samples of batches, and which of them are valid.
func named(batches []seen) (out []any) {
	for _, b := range batches {
		out = append(out, b.IDs, b.Valid)
	}
	return out
}

func TestCachesThatCanNotBe(t *testing.T) {
	spec := imageSpec(pictures(t, 3))
	spec.Cache = Cache{Memory: 1 << 60}
	if _, err := Open(t.Context(), ground(t), spec, Options{}); errs.CodeOf(err) != errs.Memory {
		t.Errorf("a cache of an exabyte: %v", err)
	}
	spec.Cache = Cache{After: "shuffle"}
	if _, err := Open(t.Context(), ground(t), spec, Options{}); err == nil || !strings.Contains(err.Error(), "cache.after") {
		t.Errorf("%v", err)
	}
}

func TestWasteIsTold(t *testing.T) {
	for chain, want := range map[string]string{
		settledChain: "",
		randomChain:  "keeps whole pictures",
		`[{"op":"Resize","size":64},{"op":"RandomHorizontalFlip"},{"op":"Resize","size":[40,40]}]`: "Resize comes after RandomHorizontalFlip",
	} {
		spec := imageSpec(pictures(t, 3))
		spec.Fields[0].Transform = ops(t, chain)
		spec.Cache = Cache{After: "random"}
		notes := strings.Join(open(t, ground(t), spec).Notes(), "\n")
		if want == "" && notes != "" || !strings.Contains(notes, want) {
			t.Errorf("%s: %q", chain, notes)
		}
	}
}

// Pictures that are stored decoded are treated as those that were encoded.
func TestTransformsOfStoredPixels(t *testing.T) {
	const n, h, w = 9, 30, 20
	raw := random(n*h*w*3, 3)
	path := saveArray(t, t.TempDir(), "images.npy", mem.Uint8, "(9, 30, 20, 3)", raw)
	spec := arraySpec([]Field{{Name: "images", Transform: ops(t, `[{"op":"RandomCrop","size":16},{"op":"RandomHorizontalFlip"}]`)}}, path)
	l := open(t, ground(t), spec)
	root := t.TempDir()
	for i := range n {
		dir := filepath.Join(root, "a")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		ppm := append([]byte("P6 20 30 255\n"), raw[i*h*w*3:(i+1)*h*w*3]...)
		if err := os.WriteFile(filepath.Join(dir, string(rune('a'+i))+".ppm"), ppm, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	same := spec
	same.Dataset = Dataset{Path: Paths{root}}
	same.Fields = []Field{{Name: "images", From: "image", Decode: "rgb", Transform: spec.Fields[0].Transform}}
	for epoch := range int64(2) {
		if digest(walk(t, l, epoch, 0, 0)) != digest(walk(t, open(t, ground(t), same), epoch, 0, 0)) {
			t.Errorf("epoch %d differs from the same pictures as files", epoch)
		}
	}
}
