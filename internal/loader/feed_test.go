package loader

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/crew"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// described is a column of an input, as workers are told.
type described struct {
	wire.Column
	Shapes []mem.Shape `json:"shapes"`
	Feed   int         `json:"feed"`
}

// given is an input that a worker got.
type given struct {
	slot    uint32
	columns []described
}

// inputs handles the frames about samples that the engine begins.
func (h *hand) inputs(kind byte, b []byte) {
	switch kind {
	case 11:
		h.given = map[uint32]given{}
	case 12:
		var columns []described
		if err := json.Unmarshal(b[12:], &columns); err != nil {
			h.t.Error(err)
		}
		h.given[le.Uint32(b)] = given{le.Uint32(b[4:]), columns}
	case 13:
		h.sources = map[uint32][2]uint32{}
		for at := 12; at < len(b); at += 12 {
			h.sources[le.Uint32(b[at:])] = [2]uint32{le.Uint32(b[at+4:]), le.Uint32(b[at+8:])}
		}
	default:
		delete(h.given, le.Uint32(b))
	}
}

// checkInput compares what a row is made from with what the engine makes of the sample by
// itself.
func (h *hand) checkInput(_ uint64, row uint32, sample int64) {
	if h.native == nil {
		return
	}
	from, ok := h.sources[row]
	if !ok {
		h.t.Errorf("row %d has no input", row)
		return
	}
	if from[0] == 0 { // a sample of a mixture that the engine does not begin
		if _, ok := h.native[sample]; ok {
			h.t.Errorf("sample %d came without its input", sample)
		}
		return
	}
	in := h.given[from[0]]
	h.life.Lock()
	defer h.life.Unlock()
	if h.dead {
		return
	}
	slot, image, at := h.slots[in.slot], in.columns[0], int64(from[1])
	var pixels []byte
	if image.Shapes != nil {
		begin := image.Data + int64(le.Uint64(slot[image.Off+8*at:]))
		pixels = slot[begin : begin+int64(image.Shapes[at].Elems())]
	} else {
		size := int64(mem.Shape(image.Shape).Elems())
		pixels = slot[image.Off+size*at : image.Off+size*(at+1)]
	}
	if !bytes.Equal(pixels, h.native[sample]) {
		h.t.Errorf("sample %d came with other pixels", sample)
	}
}

// fedSpec is pictures that the engine decodes, and Python code goes on with; loose: they
// differ in size.
func fedSpec(t *testing.T, n int, loose bool) Spec {
	spec := imageSpec(pictures(t, n))
	spec.Fields[0].Transform = ops(t, `[{"op":"Resize","size":[6,8]}]`)
	if loose {
		spec.Fields[0].Transform = nil
	}
	spec.Batch.Size, spec.Order, spec.Deliver.Prefetch = 8, Order{Shuffle: order.Full, Seed: 3}, 3
	return spec
}

// nativePixels are what the engine makes of each sample by itself. Samples that it cannot
// make are missing.
func nativePixels(t *testing.T, spec Spec) map[int64][]byte {
	t.Helper()
	spec.Batch.Size, spec.Order = 1, Order{}
	spec.OnBad.Policy = Skip
	l := open(t, ground(t), spec)
	p, err := l.Pass(0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := map[int64][]byte{}
	for {
		b, err := p.Next(context.Background(), time.Minute)
		if err != nil {
			return all
		}
		image := b.Columns[0]
		if len(b.Bad) == 0 {
			size := int64(mem.Shape(image.Shape).Elems())
			all[int64(le.Uint64(b.Slot.Mem[b.Columns[len(b.Columns)-2].Off:]))] = bytes.Clone(b.Slot.Mem[image.Off : image.Off+size])
		}
		b.Release()
	}
}

// Workers get what the engine makes of a sample, whoever makes which, in the order of the
// Spec; also while they end, and while passes are given up.
func TestWorkersGoOnWithSamples(t *testing.T) {
	for _, whole := range []bool{false, true} {
		for _, loose := range []bool{false, true} {
			t.Run(fmt.Sprintf("whole=%v/loose=%v", whole, loose), func(t *testing.T) {
				spec := fedSpec(t, 96, loose)
				native := nativePixels(t, spec)
				if len(native) != 96 {
					t.Fatalf("%d samples", len(native))
				}
				l, s := openWorkers(t, spec, whole)
				s.native = native
				defer s.replace()()
				ctx, stop := context.WithCancel(context.Background())
				defer stop()
				draw := rand.New(rand.NewPCG(1, 2))
				go func() {
					for ctx.Err() == nil {
						time.Sleep(time.Duration(draw.IntN(20)) * time.Millisecond)
						s.fire(draw.IntN(4))
					}
				}()
				for epoch := range int64(6) {
					if p, err := l.Pass(epoch, 8, 0); err != nil {
						t.Fatal(err)
					} else if b, err := p.Next(ctx, time.Minute); err != nil {
						t.Fatal(err)
					} else {
						b.Release()
						p.Cancel()
					}
					got, err := workersWalk(t, l, epoch, 0, whole)
					if err != nil || !slices.Equal(got, expected(l, epoch, 0)) {
						t.Fatalf("epoch %d: %v, %d rows", epoch, err, len(got))
					}
				}
			})
		}
	}
}

// A sample is bad if the engine cannot begin it, or if the user's code cannot finish it.
func TestWorkersAndSamplesThatCannotBeBegun(t *testing.T) {
	const n = 64
	for _, whole := range []bool{false, true} {
		for _, policy := range []string{Fail, Skip, Replace} {
			for _, both := range []bool{false, true} {
				t.Run(fmt.Sprintf("whole=%v/%s/both=%v", whole, policy, both), func(t *testing.T) {
					spec := fedSpec(t, n, false)
					broken := map[int64]bool{5: true, 17: true, 40: true, 41: true}
					for i := range broken {
						path := filepath.Join(spec.Dataset.Paths()[0], fmt.Sprintf("class%d", i%3), fmt.Sprintf("%06d.ppm", i))
						if _, err := os.Stat(path); err != nil {
							found, _ := filepath.Glob(filepath.Join(spec.Dataset.Paths()[0], "*", fmt.Sprintf("%06d.ppm", i)))
							path = found[0]
						}
						if err := os.WriteFile(path, []byte("no picture"), 0o644); err != nil {
							t.Fatal(err)
						}
					}
					spec.OnBad.Policy = policy
					l, s := openWorkers(t, spec, whole)
					s.native = nativePixels(t, spec)
					lost := n - int64(len(s.native))
					bad := func(i int64) bool { return s.native[i] == nil || both && i%16 == 3 }
					s.bad = func(i int64) bool { return both && i%16 == 3 }
					s.hire(2)
					got, err := workersWalk(t, l, 0, 0, whole)
					if policy == Fail {
						if e := errs.From(err); e.Code != errs.Damaged || !bad(e.Where.Sample.Or(-1)) {
							t.Fatalf("%v", err)
						}
						return
					}
					want := expected(l, 0, 0)
					if err != nil || len(got) != len(want) || lost != int64(len(broken)) {
						t.Fatalf("%v, %d rows, %d lost", err, len(got), lost)
					}
					for i := range got {
						var number, place int64
						_, _ = fmt.Sscan(want[i], &place)
						_, _ = fmt.Sscan(got[i], &number)
						if bad(number) || !bad(place) && got[i] != want[i] {
							t.Errorf("row %d: %s, not %s", i, got[i], want[i])
						}
					}
				})
			}
		}
	}
}

// A batch whose memory is not enough for the inputs of two is refused, and nothing hangs if
// there is just enough.
func TestWorkersAndLittleMemory(t *testing.T) {
	spec := fedSpec(t, 96, true)
	native := nativePixels(t, spec)
	for _, whole := range []bool{false, true} {
		spec.Deliver.Memory = 96 << 10
		l, s := openCrew(t, spec, crew.Options{Workers: 3, Whole: whole})
		s.native = native
		s.hire(3)
		if got, err := workersWalk(t, l, 0, 0, whole); err != nil || !slices.Equal(got, expected(l, 0, 0)) {
			t.Fatalf("whole=%v: %v, %d rows", whole, err, len(got))
		}
	}
}
