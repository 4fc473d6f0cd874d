package pack

import (
	"bytes"
	"context"
	"crypto/sha256"
	"math"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/decode"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/tool/pack/prepare"
	"github.com/stoker-data/stoker/internal/tool/pack/shard"
)

// Estimate is the expected result of a packing, from samples that were made and
// discarded.
type Estimate struct {
	Samples     int64   `json:"samples"` // that would be written, if all untried ones can be read
	SourceBytes int64   `json:"source_bytes"`
	SourceFiles int64   `json:"source_files"`
	Bytes       int64   `json:"bytes"` // that would be written
	Shards      int64   `json:"shards"`
	Measured    int     `json:"measured"`      // samples that were made
	Bad         int     `json:"bad,omitempty"` // samples that cannot be read and would be left out
	Untried     int64   `json:"untried"`       // samples of the source that were not read; Samples counts them all
	Jobs        int     `json:"jobs"`
	Seconds     float64 `json:"seconds"` // of work on Jobs cores, without waiting for disks
	// For pictures: CPU time to decode one and make a random crop of 224 pixels of
	// it, as stored now and as it would be packed; 0 if there are none.
	SourceMicros float64 `json:"decode_us_source,omitempty"`
	PackedMicros float64 `json:"decode_us_packed,omitempty"`
	// LeftOut are fields of the source that the samples would not have, or not all
	// of them.
	LeftOut []format.Left `json:"left_out,omitempty"`
}

const (
	measured    = 256 // samples at most
	measureTime = 4 * time.Second
	leastSeen   = 16 // samples, however long they take
)

// DryRun measures; it writes nothing but the dataset's index.
func DryRun(ctx context.Context, c Config) (*Estimate, error) {
	p, end, err := open(ctx, c)
	if err != nil {
		return nil, err
	}
	defer end()
	w := p.weigh()
	if _, err := p.look(ctx, w); err != nil {
		return nil, err
	}
	n := p.ds.Index().Len()
	e := &Estimate{Samples: n * p.copies, Jobs: p.Jobs, LeftOut: p.leftOut()}
	if e.Jobs <= 0 {
		e.Jobs = runtime.GOMAXPROCS(0)
	}
	for f := range p.ds.Index().Files() {
		size, _ := p.ds.Index().Stamp(f)
		e.SourceBytes += size
	}
	e.SourceFiles = int64(p.ds.Index().Files())
	all := int64(0)
	for id := range n {
		all += w.of(id)
	}
	t, err := p.trial(ctx, w)
	if err != nil {
		return nil, err
	}
	e.Measured, e.Bad, e.Untried = t.samples, t.bad, n-int64(t.samples+t.bad)
	e.Samples -= int64(t.bad) * p.copies
	all -= t.badIn
	e.Bytes = scale(all*p.copies, t.out, t.in)
	e.Shards = max(1, (scale(all*p.copies, t.plain, t.in)+p.Options.ShardSize-1)/p.Options.ShardSize)
	e.Seconds = t.work.Seconds() / float64(t.samples) * float64(e.Samples) / float64(e.Jobs)
	if t.pictures > 0 {
		e.SourceMicros = float64(t.before.Microseconds()) / float64(t.pictures)
		e.PackedMicros = float64(t.after.Microseconds()) / float64(t.pictures)
	}
	return e, nil
}

// trial is samples that were made and discarded.
type trial struct {
	samples       int
	bad           int   // samples that would be left out
	badIn         int64 // bytes of those, according to the index
	in, plain     int64 // bytes: according to the index; as written, uncompressed
	out           int64 // and compressed
	work          time.Duration
	pictures      int
	before, after time.Duration // of crops of pictures
	frame         []byte
	cropper       cropper
}

// trial makes a keyed choice of samples, the same ones every time.
func (p *packer) trial(ctx context.Context, w weights) (*trial, error) {
	n := p.ds.Index().Len()
	choice, err := order.New(n, order.Policy{Shuffle: order.Full})
	if err != nil {
		return nil, err
	}
	lane := prepare.NewLane()
	defer lane.Close()
	t := &trial{cropper: cropper{lane: kernel.NewLane()}}
	defer t.cropper.lane.Close()
	runtime.LockOSThread() // busy measures a thread
	defer runtime.UnlockOSThread()
	var s seen
	parts := make([][]byte, len(p.output.Files()))
	var bad error
	began := time.Now()
	for place := range min(int64(measured), n) {
		if place >= leastSeen && time.Since(began) > measureTime {
			break
		}
		id := choice.Epoch(0).At(place)
		begin := busy()
		made, err := p.made(ctx, lane, id, &s)
		if p.passesOver(err) {
			bad = err
			t.bad++
			t.badIn += w.of(id)
			continue
		}
		if err != nil {
			return nil, err
		}
		for i := range parts {
			parts[i] = parts[i][:0]
		}
		if err := p.output.Encode(made, parts); err != nil {
			return nil, p.read.locate(err, id)
		}
		if err := t.take(p, parts, place+1 == min(measured, n)); err != nil {
			return nil, err
		}
		t.work += busy() - begin
		t.samples++
		t.in += w.of(id)
		for i := range s.sample.Fields {
			if f := &s.sample.Fields[i]; !f.IsInt && decode.Sniff(f.Data) == decode.KindJPEG {
				t.compare(f.Data, made, f.Name)
			}
		}
	}
	if t.samples == 0 {
		return nil, bad // none can be read
	}
	return t, t.flush(p)
}

// take adds up the written size of a sample, and does the work of writing it.
func (t *trial) take(p *packer, parts [][]byte, last bool) error {
	for i, part := range parts {
		t.plain += int64(len(part))
		if p.comp == nil || p.output.Files()[i].Plain {
			t.out += int64(len(part))
			_ = sha256.Sum256(part)
			continue
		}
		t.frame = append(t.frame, part...)
	}
	if len(t.frame) >= 1<<20 || last {
		return t.flush(p)
	}
	return nil
}

func (t *trial) flush(p *packer) error {
	if len(t.frame) == 0 {
		return nil
	}
	b, err := p.comp.Frame(nil, t.frame)
	t.out += int64(len(b))
	t.frame = t.frame[:0]
	_ = sha256.Sum256(b)
	return err
}

// compare times a crop of a picture as it was, and as it would be packed.
func (t *trial) compare(was []byte, made *shard.Sample, name string) {
	i := slices.IndexFunc(made.Fields, func(f shard.Field) bool {
		return f.Name == name || f.Ext == "jpg" || f.DType == mem.Uint8 && len(f.Shape) == 3
	})
	if i < 0 {
		return
	}
	now := &made.Fields[i]
	var job kernel.Job
	if now.DType == mem.Uint8 && len(now.Shape) == 3 {
		job.Src = kernel.Pixels{Pix: now.Data, W: now.Shape[1], H: now.Shape[0], C: now.Shape[2]}
	} else if now.DType == mem.Object && decode.Sniff(now.Data) == decode.KindJPEG {
		job.JPEG = bytes.Clone(now.Data)
	} else {
		return
	}
	if bytes.Equal(job.JPEG, was) {
		return // nothing to gain
	}
	before, ok := t.cropper.time(kernel.Job{JPEG: was})
	after, ok2 := t.cropper.time(job)
	if ok && ok2 {
		t.pictures++
		t.before += before
		t.after += after
	}
}

// cropper crops as training does: a region of 0.36 of the picture, resized to 224 x
// 224. Its position hardly matters for the time.
type cropper struct {
	lane *kernel.Lane
	dst  []byte
}

func (c *cropper) time(job kernel.Job) (time.Duration, bool) {
	const side = 224
	w, h := job.Src.W, job.Src.H
	if job.JPEG != nil {
		head, err := kernel.ReadHeader(job.JPEG)
		if err != nil {
			return 0, false
		}
		w, h = head.W, head.H
	}
	cw, ch := max(1, w*3/5), max(1, h*3/5)
	c.dst = slices.Grow(c.dst[:0], side*side*3)[:side*side*3]
	job.Steps = []kernel.Step{
		{Op: kernel.OpCrop, X: (w - cw) / 2, Y: (h - ch) / 2, W: cw, H: ch},
		{Op: kernel.OpResize, W: side, H: side},
	}
	job.Dst = c.dst
	best := time.Duration(math.MaxInt64)
	for range 3 {
		begin := busy()
		if c.lane.Run(&job) != nil {
			return 0, false
		}
		best = min(best, busy()-begin)
	}
	return best, true
}

// busy is the CPU time of this thread, without that of other threads.
func busy() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
