package loader

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/crew"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// mixedSpec is a mixture of numbers that workers make, of pictures that differ in size,
// and of pictures of one size: the engine begins these two.
func mixedSpec(t *testing.T) (Spec, []Begin) {
	python := func(n int64, digest string) Dataset {
		return Dataset{Format: "python", Samples: n, Digest: digest}
	}
	mixed := Spec{
		Dataset: Dataset{Mixed: []Dataset{python(30, "own"), python(40, "loose"), python(26, "equal")}},
		Batch:   BatchSpec{Size: 8}, Order: Order{Shuffle: order.Full, Seed: 3}, Deliver: Deliver{Prefetch: 3},
		Mix: spec.Mix{Stop: order.AllExhausted},
	}
	begins := []Begin{{Member: 1, Spec: fedSpec(t, 40, true)}, {Member: 2, Spec: fedSpec(t, 26, false)}}
	for i := range begins {
		begins[i].Spec.Batch.Size, begins[i].Spec.Order, begins[i].Spec.Deliver = 1, Order{}, Deliver{}
	}
	return mixed, begins
}

func openMixed(t *testing.T, s Spec, begins []Begin, whole bool) (*Loader, *staff) {
	l := open(t, workersGround(t), s, Options{Workers: &crew.Options{Workers: 2, Whole: whole}, Begins: begins})
	at := newStaff(t, l, whole)
	at.native = map[int64][]byte{}
	for _, b := range begins {
		for id, pixels := range nativePixels(t, b.Spec) {
			at.native[l.data.Parts[b.Member].First+id] = pixels
		}
	}
	return l, at
}

// Rows of a batch are made from what several feeds have begun, and from nothing, in the
// order of the Spec; also while workers end, and while passes are given up.
func TestWorkersGoOnWithSamplesOfMixtures(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("whole=%v", whole), func(t *testing.T) {
			mixed, begins := mixedSpec(t)
			l, s := openMixed(t, mixed, begins, whole)
			if len(s.native) != 66 {
				t.Fatalf("%d samples", len(s.native))
			}
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

// A sample that the engine cannot begin is a bad sample of the mixture. Its error names the
// sample by its number there, and the file. Another dataset's sample may replace it.
func TestSamplesOfMixturesThatCannotBeBegun(t *testing.T) {
	for _, whole := range []bool{false, true} {
		for _, policy := range []string{Fail, Skip, Replace} {
			t.Run(fmt.Sprintf("whole=%v/%s", whole, policy), func(t *testing.T) {
				mixed, begins := mixedSpec(t)
				found, _ := filepath.Glob(filepath.Join(begins[1].Spec.Dataset.Paths()[0], "*", "*.ppm"))
				slices.Sort(found)
				for _, i := range []int{3, 11, 12, 20} {
					if err := os.WriteFile(found[i], []byte("no picture"), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				mixed.OnBad.Policy = policy
				l, s := openMixed(t, mixed, begins, whole)
				s.hire(2)
				bad := func(id int64) bool { return id >= 70 && s.native[id] == nil }
				got, err := workersWalk(t, l, 0, 0, whole)
				if policy == Fail {
					e := errs.From(err)
					if e.Code != errs.Damaged || !bad(e.Where.Sample.Or(-1)) || !slices.Contains(found, e.Where.File) {
						t.Fatalf("%v", err)
					}
					return
				}
				want := expected(l, 0, 0)
				if err != nil || len(got) != len(want) || len(s.native) != 62 {
					t.Fatalf("%v, %d rows", err, len(got))
				}
				for i := range got {
					var number, ordered int64
					_, _ = fmt.Sscan(want[i], &ordered)
					_, _ = fmt.Sscan(got[i], &number)
					if bad(number) || !bad(ordered) && got[i] != want[i] {
						t.Errorf("row %d: %s, not %s", i, got[i], want[i])
					}
				}
			})
		}
	}
}

// Nothing hangs if feeds have memory for few batches, and workers end and passes are given
// up meanwhile: the oldest batch needs a slot of each feed, and none waits for a newer one.
func TestMixturesAndLittleMemory(t *testing.T) {
	for _, whole := range []bool{false, true} {
		mixed, begins := mixedSpec(t)
		mixed.Deliver.Memory, mixed.Deliver.Prefetch = 96<<10, 8
		l, s := openMixed(t, mixed, begins, whole)
		stop := s.replace()
		for epoch := range int64(8) {
			if p, err := l.Pass(epoch, 16, 0); err != nil {
				t.Fatal(err)
			} else if b, err := p.Next(context.Background(), time.Minute); err != nil {
				t.Fatal(err)
			} else {
				b.Release()
				p.Cancel()
			}
			s.fire(int(epoch) % 3)
			if got, err := workersWalk(t, l, epoch, 0, whole); err != nil || !slices.Equal(got, expected(l, epoch, 0)) {
				t.Fatalf("whole=%v, epoch %d: %v, %d rows", whole, epoch, err, len(got))
			}
		}
		stop()
	}
}

// A dataset that has changed since the loader was made is refused.
func TestBeginsThatDoNotFit(t *testing.T) {
	mixed, begins := mixedSpec(t)
	mixed.Dataset.Mixed[2].Samples = 27
	_, err := Open(context.Background(), workersGround(t), mixed, Options{Workers: &crew.Options{Workers: 1}, Begins: begins})
	if errs.CodeOf(err) != errs.Changed {
		t.Fatal(err)
	}
}
