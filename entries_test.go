package stoker_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	stoker "github.com/stoker-data/stoker"
	"github.com/stoker-data/stoker/internal/base/kernel"
)

// hurt damages photographs of a folder: cut in the middle and ended, bits flipped in the upper
// and in the lower half, the end missing, and no picture at all.
func hurt(tb testing.TB, root string) {
	tb.Helper()
	for name, harm := range map[string]func(b []byte) []byte{
		"chelsea/000.jpg": func(b []byte) []byte { return append(b[:len(b)/2], 0xff, 0xd9) },
		"chelsea/006.jpg": func(b []byte) []byte { b[len(b)*4/5] ^= 0x55; return b },
		"coffee/004.jpg":  func(b []byte) []byte { copy(b[len(b)*2/3:], "\xff\x00\xff\xc4\x00"); return b },
		"coffee/010.jpg":  func(b []byte) []byte { b[len(b)/3] ^= 0x55; return b },
		"rocket/005.jpg":  func(b []byte) []byte { return b[:len(b)-100] },
		"rocket/011.jpg":  func([]byte) []byte { return []byte("no picture") },
	} {
		path := filepath.Join(root, name)
		raw, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, harm(raw), 0o644)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// account is all that a loader gave: batches with their bad samples, and the state after each
// of them, epoch by epoch.
type account struct {
	epochs [][]string
	states [][]stoker.State
	bad    int
}

// accountOf reads epochs from a loader's place on.
func accountOf(t *testing.T, l *stoker.Loader, epochs int) (a account) {
	t.Helper()
	for range epochs {
		var batches []string
		var states []stoker.State
		for b, err := range l.Batches(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			text := batchText(t, l, b)
			for _, x := range b.Bad {
				text += fmt.Sprintln("bad", x.Place, x.Sample, x.Put, x.Err)
				a.bad++
			}
			batches, states = append(batches, text), append(states, fromJSON(t, save(t, l)))
		}
		a.epochs, a.states = append(a.epochs, batches), append(a.states, states)
	}
	return a
}

// Orders, states at every step and what they resume, receipts, and bad samples with their
// errors are the same with entry points and without, while they are learned and after.
func TestEntryPointsChangeNoAccount(t *testing.T) {
	for _, policy := range []string{stoker.Skip, stoker.Replace} {
		t.Run(policy, func(t *testing.T) {
			t.Setenv("STOKER_CACHE", t.TempDir())
			root := photos(t, 18)
			hurt(t, root)
			spec := train(root, 4)
			spec.OnBad.Policy = policy
			const epochs = 3
			without := spec
			without.Entries.Off = true
			plain := open(t, without)
			want := accountOf(t, plain, epochs)
			if want.bad < 8 || want.bad >= 6*epochs {
				t.Fatalf("%d bad samples: some must be bad in some crops only", want.bad)
			}
			receipt := receipts(t, plain)
			compare := func(what string, l *stoker.Loader) {
				t.Helper()
				got := accountOf(t, l, epochs)
				if diff := cmp.Diff(want.epochs, got.epochs); diff != "" {
					t.Errorf("%s, batches: %.3000s", what, diff)
				}
				for e := range want.states {
					if !slices.EqualFunc(want.states[e], got.states[e], func(a, b stoker.State) bool { return bytes.Equal(compact(t, a), compact(t, b)) }) {
						t.Errorf("%s, epoch %d: other states", what, e)
					}
				}
				if diff := cmp.Diff(receipt, receipts(t, l)); diff != "" {
					t.Errorf("%s, receipts: %s", what, diff)
				}
				if v := plain.Verify(receipts(t, l)...); !v.OK || !v.Complete {
					t.Errorf("%s: %+v", what, v)
				}
			}
			first := open(t, spec)
			compare("while they are learned", first)
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			compare("all known", open(t, spec))

			known := open(t, spec)
			for epoch, states := range want.states {
				for step, s := range states {
					if err := known.Restore(s); err != nil {
						t.Fatal(err)
					}
					known.SetEpoch(int64(epoch))
					if got := accountOf(t, known, 1); !slices.Equal(got.epochs[0], want.epochs[epoch][step+1:]) {
						t.Errorf("after step %d of epoch %d: another stream", step, epoch)
					}
				}
			}
			found := known.Stats().Entries
			uses := kernel.Target() != "go" // without C they are learned, and not used
			if found == nil || found.Known == 0 || found.Leapt > 0 != uses || found.Wrong > 0 || found.Stored == 0 {
				t.Errorf("%+v", found)
			}
		})
	}
}
