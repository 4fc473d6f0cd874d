package tiers

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/system"
)

// What a store gives is measured on objects of the dataset, in the way that the loader reads
// them: the same connections, with the limits that its requests have found. Caches of the
// store, and of proxies before it, are not seen.

// fromRequests is where figures of a store come from.
const fromRequests = "requests to the store"

// The tiers of a store.
const (
	smallRequests  = "small reads, 4 KiB"
	oneConnection  = "one connection"
	allConnections = "all connections"

	// wholeObjects follows the names of tiers of small objects: each is a request, whose wait
	// is most of what it costs.
	wholeObjects = ", whole objects"
)

// far is some objects of a dataset that come over a network.
type far struct {
	src  source.Source
	objs []source.Info
	part int64 // bytes of one request
	all  int   // connections
	wait float64
	// whole says that all objects are small: what a connection brings is bounded by waits, and
	// taking them off would leave little but chance.
	whole bool
}

// isFar says whether names are of a server.
func isFar(name string) bool { return source.HostOf(name) != "" }

// newFar looks at objects by their names; nil if none is there.
func newFar(ctx context.Context, schemes []source.Scheme, s spec.Spec, names []string) *far {
	src, err := dataset.SourceOf(schemes, s)
	if err != nil {
		return nil
	}
	f := &far{src: src, part: wholeRead, all: system.Streams}
	for _, name := range names {
		if !isFar(name) || len(f.objs) == system.FewFiles {
			continue
		}
		if obj, err := src.Stat(ctx, name); err == nil && obj.Size > 0 && !obj.Dir {
			f.objs = append(f.objs, obj)
		}
	}
	if len(f.objs) == 0 {
		return nil
	}
	if l, ok := src.Link(f.objs[0].Name); ok {
		f.part, f.all = l.Part, max(l.Conns, 1)
	}
	f.whole = !slices.ContainsFunc(f.objs, func(o source.Info) bool { return o.Size >= min(f.part, wholeRead) })
	return f
}

// read reads n bytes anywhere in any of the objects, or all of a smaller one.
func (f *far) read(ctx context.Context, n int64) (int64, error) {
	obj := f.objs[rand.IntN(len(f.objs))]
	n = min(n, obj.Size)
	return n, f.src.ReadAt(ctx, obj, make([]byte, n), rand.Int64N(obj.Size-n+1))
}

// small is requests whose bytes take no time: what is left is the wait for an answer.
func (f *far) small(ctx context.Context, d time.Duration) evidence.Tier {
	t := evidence.Tier{Of: evidence.OfStorage, Name: smallRequests}
	var took []float64
	for began := time.Now(); len(took) < mostReads && (len(took) == 0 || time.Since(began) < d); {
		from := time.Now()
		if _, err := f.read(ctx, system.SmallRead); err != nil {
			t.Cut = err.Error()
			return t
		}
		took = append(took, time.Since(from).Seconds())
	}
	t = spread(t, took, fromRequests)
	slices.Sort(took)
	f.wait = took[len(took)/2]
	return t
}

// together is requests as long as the loader's, so many at once, or of whole objects if these
// are shorter. Unless they are small, the waits for answers are taken off one connection: they
// are in the tier of small reads.
func (f *far) together(ctx context.Context, name string, n int, d time.Duration) evidence.Tier {
	if f.whole {
		name += wholeObjects
	}
	t := evidence.Tier{Of: evidence.OfStorage, Name: name, Count: evidence.Measured(float64(n), fromRequests)}
	var bytes, requests atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	began := time.Now()
	for range n {
		wg.Go(func() {
			for first := true; first || time.Since(began) < d && bytes.Load() < mostBytes; first = false {
				got, err := f.read(ctx, f.part)
				if err != nil {
					failed.Store(&err)
					return
				}
				bytes.Add(got)
				requests.Add(1)
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		t.Cut = (*err).Error()
		return t
	}
	seconds := time.Since(began).Seconds()
	if n == 1 && !f.whole {
		seconds = max(seconds-float64(requests.Load())*f.wait, seconds/10)
	}
	t.Bytes = evidence.Ratio(float64(bytes.Load()), seconds, fromRequests)
	return t
}

// tiers are all of them, each as long as d and one read more.
func (f *far) tiers(ctx context.Context, d time.Duration) []evidence.Tier {
	return []evidence.Tier{f.small(ctx, d), f.together(ctx, oneConnection, 1, d), f.together(ctx, allConnections, f.all, d)}
}

// storage is what the tiers say, as rules look at it.
func (f *far) storage(all []evidence.Tier, asked map[string]stats.Source) evidence.Storage {
	host := ""
	for h, s := range asked { // the one that gave most
		if host == "" || s.Bytes > asked[host].Bytes {
			host = h
		}
	}
	return evidence.Storage{File: f.objs[0].Name, Remote: host, Latency: all[0].Mean, Alone: all[1].Bytes, Streams: f.all, Rate: all[2].Bytes, Quiet: true}
}

// refused is the share of requests that stores refused as too many between two looks.
func refused(before, after stats.Snapshot) evidence.Figure {
	var asked, not int64
	for s := range maps.Values(after.Since(stats.Snapshot{At: before.At, Sources: before.Sources}).Sources) {
		asked, not = asked+s.Requests, not+s.Throttled
	}
	return evidence.Ratio(float64(not), float64(asked), fromRequests)
}
