package stoker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	stoker "github.com/stoker-data/stoker"
)

// batchText is all that users can read of a batch.
func batchText(tb testing.TB, l *stoker.Loader, b *stoker.Batch) string {
	tb.Helper()
	var out strings.Builder
	fmt.Fprintln(&out, b.Epoch, b.Step, b.Position, b.Rows, b.IDs(), b.Valid())
	for _, c := range l.Columns() {
		var data any
		var err error
		switch c.DType {
		case "uint8":
			data, err = b.Uint8(c.Name)
		case "int32":
			data, err = b.Int32(c.Name)
		case "int64":
			data, err = b.Int64(c.Name)
		case "object":
			data, err = b.Bytes(c.Name)
		}
		if err != nil || data == nil {
			tb.Fatalf("column %s of %s: %v", c.Name, c.DType, err)
		}
		fmt.Fprintln(&out, c.Name, data)
	}
	return out.String()
}

// passText is a pass, up to most batches if that is not 0, and the state after
// each of them.
func passText(tb testing.TB, l *stoker.Loader, most int) (out []string, states []stoker.State) {
	tb.Helper()
	for b, err := range l.Batches(tb.Context()) {
		if err != nil {
			tb.Fatal(err)
		}
		out, states = append(out, batchText(tb, l, b)), append(states, fromJSON(tb, save(tb, l)))
		if len(out) == most {
			break
		}
	}
	return out, states
}

func fromJSON(tb testing.TB, raw []byte) (s stoker.State) {
	tb.Helper()
	var pretty bytes.Buffer
	if err := errors.Join(json.Indent(&pretty, raw, "", "    "), json.Unmarshal(pretty.Bytes(), &s)); err != nil {
		tb.Fatal(err)
	}
	return s
}

// compact is a state as the library writes it.
func compact(tb testing.TB, s stoker.State) []byte {
	tb.Helper()
	raw, err := json.Marshal(s)
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

// Every order: a state of every step, restored, gives what followed, and then
// the next epoch; SetEpoch of the restored epoch keeps the position, of another
// begins it.
func TestRestoreEveryOrder(t *testing.T) {
	dir, more := shards(t, 9, 2, 11, 7), shards(t, 8, 5)
	for name, spec := range receiptSpecs(dir, more) {
		t.Run(name, func(t *testing.T) {
			l, other := open(t, spec), open(t, spec)
			l.SetEpoch(3)
			three, states := passText(t, l, 0)
			four, _ := passText(t, l, 0)
			nine := func() []string { l.SetEpoch(9); out, _ := passText(t, l, 1); return out }()
			for i, s := range states {
				if err := other.Restore(s); err != nil {
					t.Fatal(err)
				}
				if got, want := save(t, other), compact(t, s); !bytes.Equal(got, want) {
					t.Fatalf("restored %s, saved %s", want, got)
				}
				other.SetEpoch(3)
				if got, _ := passText(t, other, 0); !slices.Equal(got, three[i+1:]) {
					t.Fatalf("after step %d: another stream", i)
				}
				if got, _ := passText(t, other, 1+i%2*1000); !slices.Equal(got, four[:len(got)]) || len(got) == 0 {
					t.Fatalf("after step %d: another next epoch", i)
				}
			}
			if err := other.Restore(states[1]); err != nil {
				t.Fatal(err)
			}
			other.SetEpoch(9)
			if got, _ := passText(t, other, 1); !slices.Equal(got, nine) {
				t.Error("SetEpoch of another epoch does not begin it")
			}
		})
	}
}

// Passes over every order that are given up, and two at once, disturb nobody;
// State speaks of the one begun last.
func TestPassesOfEveryOrder(t *testing.T) {
	dir, more := shards(t, 9, 2, 11, 7), shards(t, 8, 5)
	for name, spec := range receiptSpecs(dir, more) {
		t.Run(name, func(t *testing.T) {
			l := open(t, spec)
			want := map[int64][]string{}
			for e := range int64(4) {
				want[e], _ = passText(t, l, 0)
			}
			l.SetEpoch(0)
			for e := range int64(3) {
				if got, _ := passText(t, l, int(e)+1); !slices.Equal(got, want[e][:e+1]) {
					t.Fatalf("given up after %d batches of epoch %d: another stream", e+1, e)
				}
			}
			if s := l.State(); s.Epoch != 2 {
				t.Errorf("the pass begun last was of epoch 2, and the state is %+v", s)
			}
			l.SetEpoch(1)
			var wg sync.WaitGroup
			got := make([][]string, 2)
			for i := range got {
				wg.Go(func() {
					for b, err := range l.Batches(context.Background()) {
						if err != nil {
							t.Error(err)
							return
						}
						got[i] = append(got[i], batchText(t, l, b))
					}
				})
			}
			wg.Wait()
			slices.SortFunc(got, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
			if !slices.Equal(got[0], want[1]) || !slices.Equal(got[1], want[2]) {
				t.Error("two passes at once: another stream")
			}
		})
	}
}

// A state goes on in its own stream only: every setting that decides the order is
// part of it.
func TestStatesOfOtherOrders(t *testing.T) {
	dir, more := shards(t, 9, 2, 11, 7), shards(t, 8, 5)
	specs := receiptSpecs(dir, more)
	delete(specs, "tail fill") // the tail is the present world's
	delete(specs, "tail drop")
	loaders := map[string]*stoker.Loader{}
	for name, spec := range specs {
		loaders[name] = open(t, spec)
	}
	for name, l := range loaders {
		for other, o := range loaders {
			err := o.Restore(fromJSON(t, save(t, l)))
			if (err == nil) != (name == other) {
				t.Errorf("a state of %q in %q: %v", name, other, err)
			}
			var e *stoker.Error
			if err != nil && (!errors.As(err, &e) || e.Code != "state") {
				t.Errorf("a state of %q in %q: %v", name, other, err)
			}
		}
	}
	l := loaders["tokens"]
	s := l.State()
	for name, change := range map[string]func(*stoker.State){
		"a version":        func(s *stoker.State) { s.Version = 2 },
		"a place too far":  func(s *stoker.State) { s.Position = 1000 },
		"a place below 0":  func(s *stoker.State) { s.Position = -1 },
		"an epoch below 0": func(s *stoker.State) { s.Epoch = -1 },
		"no order":         func(s *stoker.State) { s.Order = nil },
		"a broken order":   func(s *stoker.State) { s.Order = json.RawMessage(`{"shuffle":`) },
		"an order of list": func(s *stoker.State) { s.Order = json.RawMessage(`[1, 2]`) },
		"lists in order":   func(s *stoker.State) { s.Order = json.RawMessage(`{"shuffle": ["full"], "tokens": {}}`) },
	} {
		broken := s
		change(&broken)
		if err := l.Restore(broken); err == nil {
			t.Errorf("%s: restored", name)
		}
	}
	if got, _ := passText(t, l, 0); len(got) == 0 {
		t.Error("after all that nothing comes")
	}
}
