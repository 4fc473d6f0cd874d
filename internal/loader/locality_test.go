package loader

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// counting is a source that counts what is read, by file.
type counting struct {
	source.Source
	mu    sync.Mutex
	bytes map[string]int64
}

func (c *counting) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	c.mu.Lock()
	c.bytes[strings.Clone(filepath.Base(obj.Name))] += int64(len(p)) // names are not kept
	c.mu.Unlock()
	return c.Source.ReadAt(ctx, obj, p, off)
}

// reset forgets what was read so far, and returns it.
func (c *counting) reset() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.bytes
	c.bytes = map[string]int64{}
	return was
}

// unequalShards is n shards of unequal numbers of samples of about size bytes; a
// multiple of 16 in all, so that no rank is padded with samples of another's.
func unequalShards(t testing.TB, n, size int) (dir string, samples int, bytes int64) {
	t.Helper()
	dir = t.TempDir()
	body := make([]byte, 2*size)
	for shard := range n {
		var members []member
		more := 1 + shard*7%13
		if shard == n-1 {
			more = 16 - samples%16
		}
		for range more {
			members = append(members, member{fmt.Sprintf("%06d.bin", samples), body[:size/2+samples*37%size]})
			samples++
		}
		path := filepath.Join(dir, fmt.Sprintf("%03d.tar", shard))
		writeTar(t, path, members)
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		bytes += st.Size()
	}
	return dir, samples, bytes
}

// Four nodes that share a dataset of unequal shards read it, all together, about
// once an epoch, and every shard on one node, those at the cuts of streams on
// two; whatever the world that divides the streams.
func TestNodesReadTheirOwnShards(t *testing.T) {
	const nodes, streams = 4, 8
	for _, c := range []struct {
		name   string
		size   int
		window int64
	}{
		{"shuffled in windows", 40 << 10, 0},
		{"small samples, read in place", 3 << 10, 1},
		{"small samples, shuffled in windows", 3 << 10, 0},
	} {
		dir, samples, data := unequalShards(t, 40, c.size)
		for _, world := range []int{1, 2, 4, 8} {
			t.Run(fmt.Sprintf("%s/%d ranks", c.name, world), func(t *testing.T) {
				s := ground(t)
				var total int64
				readers := map[string]map[int]bool{}
				came := map[int64]int{}
				for rank := range world {
					spec := Spec{
						Dataset: Dataset{Path: Paths{dir}}, Fields: []Field{{Name: "bin"}}, Rank: rank, World: world, Workers: 2,
						Order: Order{Shuffle: order.BlockWise, Seed: 4, Streams: streams, Window: c.window},
						Batch: BatchSpec{Size: 16 / world}, Deliver: Deliver{Prefetch: 1},
					}
					var count *counting
					l := open(t, s, spec, Options{Wrap: func(src source.Source) source.Source {
						count = &counting{Source: src, bytes: map[string]int64{}}
						return count
					}})
					count.reset() // what the index took
					p, err := l.Pass(0, 0, 0)
					if err != nil {
						t.Fatal(err)
					}
					s.mu.Lock()
					p.alone = true // this epoch's reads only
					s.mu.Unlock()
					for _, b := range drain(t, l, p) {
						for r, id := range b.ids() {
							came[id] += int(b.valid()[r])
						}
					}
					for shard, n := range count.reset() {
						total += n
						if readers[shard] == nil {
							readers[shard] = map[int]bool{}
						}
						readers[shard][rank*nodes/max(world, nodes)] = true
					}
				}
				for id := range int64(samples) {
					if came[id] != 1 {
						t.Fatalf("sample %d came %d times", id, came[id])
					}
				}
				twice := 0
				for shard, by := range readers {
					if len(by) > 1 {
						twice++
					}
					if len(by) > 2 {
						t.Errorf("shard %s was read by %d nodes", shard, len(by))
					}
				}
				if twice > streams-1 {
					t.Errorf("%d shards were read by more than one node: %d are at cuts", twice, streams-1)
				}
				if ratio := float64(total) / float64(data); ratio > 1.05 {
					t.Errorf("%d bytes read of %d: %.3f of the data", total, data, ratio)
				} else {
					t.Logf("%.3f of the data, %d shards on two nodes", ratio, twice)
				}
			})
		}
	}
}
