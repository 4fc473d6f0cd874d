package loader

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest/waiting"
)

// overLink makes a source one that a link leads to.
func overLink(src source.Source) source.Source {
	return waiting.New(src, waiting.Link{Told: source.Link{Gap: 100_000, Part: 100_000, Conns: 8}})
}

// slowly makes a source slow, and does not say so.
func slowly(src source.Source) source.Source {
	return waiting.New(src, waiting.Link{Latency: time.Millisecond, Silent: true})
}

// served is a loader over a source that a link leads to, and what that has served.
func served(t *testing.T, s *Shared, spec Spec, opt Options, told source.Link) (*Loader, func() waiting.Served) {
	t.Helper()
	var src *waiting.Source
	opt.Wrap = func(in source.Source) source.Source {
		src = waiting.New(in, waiting.Link{Latency: 2 * time.Millisecond, Told: told})
		return src
	}
	l := open(t, s, spec, opt)
	before := src.Served() // indexing
	return l, func() waiting.Served {
		now := src.Served()
		now.Requests, now.Bytes, now.Spans = now.Requests-before.Requests, now.Bytes-before.Bytes, now.Spans[len(before.Spans):]
		return now
	}
}

// members are the spec of tar shards with n pictures, per of them in each, as bytes.
func members(t *testing.T, n, per int) Spec {
	return Spec{Dataset: Dataset{Path: Paths{shards(t, n, per)}}, Batch: BatchSpec{Size: 8}, Workers: 2, Fields: []Field{{Name: "ppm", Decode: "bytes"}}}
}

// Neighbours in a shard are read together although a shuffle puts them into different batches:
// blocks take few requests, and the same stream without plans takes many.
func TestBlocksAreReadInLongRanges(t *testing.T) {
	s := ground(t)
	spec := members(t, 600, 200)
	spec.Order = Order{Shuffle: order.BlockWise, Window: 200, Streams: 1}
	told := source.Link{Gap: 1 << 20, Part: 4 << 20, Conns: 16}
	requests := map[bool]int64{}
	var streams [][]string
	for _, near := range []bool{false, true} {
		l, of := served(t, s, spec, Options{Near: near}, told)
		streams = append(streams, texts(walkAll(t, l, 0, 0, 0)))
		requests[near] = of().Requests
	}
	if !slices.Equal(streams[0], streams[1]) {
		t.Error("another stream")
	}
	// A few batches begin before anything is planned.
	if requests[false] > 40 || requests[true] < 2*requests[false] {
		t.Errorf("requests for 600 samples in 3 shards: %d with plans, %d without", requests[false], requests[true])
	}
}

// As many reads at once as the link is worth, within the limit.
func TestReadsAtOnce(t *testing.T) {
	s := ground(t)
	spec := imageSpec(pictures(t, 300))
	spec.Batch.Size, spec.Order.Shuffle = 4, order.Full
	for conns, limit := range map[int]int{3: 0, 40: 0, 41: 5} {
		spec.Fetch.Connections = Connections(limit)
		l, of := served(t, s, spec, Options{}, source.Link{Conns: conns})
		walkAll(t, l, 0, 0, 0)
		most := conns
		if limit > 0 {
			most = limit
		}
		if got := of().Most; got > most || got < min(most, 30) {
			t.Errorf("%d reads at once over a link worth %d, limit %d", got, conns, limit)
		}
	}
}

// A position that changes, and a pass that is cancelled, drop what was planned; what is read
// in one epoch is read once.
func TestPlansEndWithTheirPass(t *testing.T) {
	s := ground(t)
	spec := members(t, 400, 100)
	spec.Order = Order{Shuffle: order.Full}
	l, of := served(t, s, spec, Options{}, source.Link{Gap: 512, Part: 1 << 20, Conns: 16})
	whole := texts(walkAll(t, l, 0, 0, 0))
	if n := of().Bytes; n > 2*400*4000 { // some of the next epoch besides
		t.Errorf("%d bytes read for 400 samples of 3,600", n)
	}
	for _, at := range []int64{5, 30, 0} {
		p, err := l.Pass(0, at*8, at)
		if err != nil {
			t.Fatal(err)
		}
		b, err := p.Next(context.Background(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if b.Step != at {
			t.Errorf("step %d at %d", b.Step, at)
		}
		b.Release()
		p.Cancel()
		if rest := texts(walkAll(t, l, 0, at*8, at)); !slices.Equal(rest, whole[at:]) {
			t.Errorf("from step %d: another stream", at)
		}
	}
	l.Close()
	waitQuiet(t, l)
	for end := time.Now().Add(time.Minute); l.fetch.Ahead().Bytes > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%+v are still held", l.fetch.Ahead())
		}
	}
}

// Samples that are bad, and replaced, are the same ones, and nothing else fails with them,
// however far the storage is.
func TestBadSamplesFromFar(t *testing.T) {
	s := ground(t)
	root := pictures(t, 120)
	for _, cut := range []string{"class0/000003.ppm", "class2/000100.ppm"} {
		if err := os.WriteFile(filepath.Join(root, cut), []byte("P6 40 30 255\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	spec := imageSpec(root)
	spec.Batch.Size, spec.Order.Shuffle = 6, order.Full
	for _, policy := range []string{"skip", "replace"} {
		spec.OnBad.Policy = Skip
		if policy == "replace" {
			spec.OnBad.Policy = Replace
		}
		want := texts(walkAll(t, open(t, s, spec), 0, 0, 0))
		if got := texts(walkAll(t, open(t, s, spec, Options{Wrap: overLink}), 0, 0, 0)); !slices.Equal(got, want) {
			t.Errorf("%s: another stream", policy)
		}
	}
}

// Bytes of a shard that cannot be read fail the samples that they belong to, and none that was
// to be read with them.
func TestUnreadableBytesFailTheirSamples(t *testing.T) {
	s := ground(t)
	spec := members(t, 60, 60)
	spec.Batch.Size = 4
	var src *waiting.Source
	l := open(t, s, spec, Options{Wrap: func(in source.Source) source.Source {
		src = waiting.New(in, waiting.Link{Told: source.Link{Gap: 1 << 20, Part: 4 << 20, Conns: 8}})
		return src
	}})
	extents := l.filler.Extents(41, nil)
	src.Fail(func(_ string, off, n int64) error {
		if at := extents[0].Off; off <= at && at < off+n {
			return errs.New(errs.Unreadable, "a bad sector")
		}
		return nil
	})
	p, err := l.Pass(0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for step := int64(0); ; step++ {
		b, err := p.Next(context.Background(), time.Minute)
		if err != nil {
			e := errs.From(err)
			if at, _ := e.Where.Sample.Get(); e.Code != errs.Unreadable || step != 10 || at/4 != 10 {
				t.Errorf("step %d: %v", step, err)
			}
			break
		}
		b.Release()
	}
}
