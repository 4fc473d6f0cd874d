package loader

import (
	"context"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/crew"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// stranger is a worker that answers the first task that it gets with the frames that reply
// sends.
func stranger(t *testing.T, l *Loader, reply func(h *hand, batch uint64)) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(pair[0]), "worker")
	conn, err := net.FileConn(file)
	file.Close()
	if err != nil {
		t.Fatal(err)
	}
	h := &hand{sock: conn.(*net.UnixConn)} //nolint:forcetypeassert // of AF_UNIX
	t.Cleanup(func() { h.sock.Close() })
	go func() {
		defer h.sock.Close()
		for {
			var head [5]byte
			if _, err := io.ReadFull(h, head[:]); err != nil {
				return
			}
			b := make([]byte, le.Uint32(head[:])-1)
			if _, err := io.ReadFull(h, b); err != nil {
				return
			}
			if head[4] == 4 || head[4] == 16 {
				reply(h, le.Uint64(b))
			}
		}
	}()
	if err := l.Workers().Hire(pair[1], 0, 0); err != nil {
		t.Fatal(err)
	}
}

// A worker that answers what it was not asked is an error of the pass, and never the end of
// the engine: it serves other loaders.
func TestWorkersThatAnswerOtherThings(t *testing.T) {
	const big = uint64(1) << 62
	shape := func(sizes ...uint64) func(*hand, uint64) {
		return func(h *hand, id uint64) {
			parts := []any{id, uint32(0), uint32(len(sizes))}
			for _, size := range sizes {
				parts = append(parts, size)
			}
			h.send(2, append(parts, uint32(0))...)
		}
	}
	need := func(bytes uint64) func(*hand, uint64) { return func(h *hand, id uint64) { h.send(4, id, bytes) } }
	wrote := func(bytes uint64) func(*hand, uint64) {
		return func(h *hand, id uint64) { h.send(5, id, bytes, uint64(1)) }
	}
	made := func(bytes uint64) func(*hand, uint64) {
		return func(h *hand, id uint64) { h.send(7, id, bytes, uint64(1), uint32(3), uint32(0)) }
	}
	ended := func(h *hand, id uint64) { h.send(8, id) }
	stack := func(h *hand, id uint64) {
		for range 2 { // the second one while it waits for the first
			h.send(3, id, uint64(1), uint32(1), uint32(0), []byte{1}, uint32(len(wrong)), wrong)
		}
	}
	for name, try := range map[string]struct {
		crew.Options
		reply func(*hand, uint64)
	}{
		"rows, need":             {reply: need(16)},
		"rows, wrote":            {reply: wrote(16)},
		"rows, made":             {reply: made(16)},
		"rows, ended":            {reply: ended},
		"rows, shape too large":  {reply: shape(big)},
		"rows, shapes too large": {reply: shape(big>>27, big>>27, 1)},
		"rows, shape twice":      {reply: func(h *hand, id uint64) { shape(8)(h, id); shape(8, 8)(h, id) }},
		"whole, shape":           {crew.Options{Whole: true}, shape(8)},
		"whole, wrote too much":  {crew.Options{Whole: true}, wrote(1 << 40)},
		"whole, wrote -1":        {crew.Options{Whole: true}, wrote(1<<64 - 1)},
		"whole, made":            {crew.Options{Whole: true}, made(16)},
		"whole, need too much":   {crew.Options{Whole: true}, need(big)},
		"whole, ended":           {crew.Options{Whole: true}, ended},
		"whole, bad twice":       {crew.Options{Whole: true}, stack},
		"turns, wrote":           {crew.Options{Iterates: true}, wrote(16)},
		"turns, shape":           {crew.Options{Iterates: true}, shape(8)},
		"turns, made too much":   {crew.Options{Iterates: true}, made(1 << 40)},
	} {
		t.Run(name, func(t *testing.T) {
			spec := workersSpec(64)
			if try.Iterates {
				spec.Dataset.Samples, spec.Order, spec.Batch.Size = 1<<53, Order{Shuffle: order.None}, 1
			}
			l, _ := openCrew(t, spec, try.Options)
			stranger(t, l, try.reply)
			p, err := l.Pass(0, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Cancel()
			ctx, stop := context.WithTimeout(context.Background(), time.Minute)
			defer stop()
			_, err = p.Next(ctx, 0)
			if e := errs.From(err); err == nil || ctx.Err() != nil || e.Code != errs.Bug && e.Code != errs.Damaged {
				t.Errorf("%v", err)
			}
		})
	}
}

// Workers that come after their loader was closed are sent home.
func TestWorkersOfALoaderThatIsClosed(t *testing.T) {
	l, _ := openWorkers(t, workersSpec(16), false)
	l.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Workers().Hire(pair[1], 0, 0); errs.CodeOf(err) != errs.Config {
		t.Errorf("%v", err)
	}
	theirs := os.NewFile(uintptr(pair[0]), "worker")
	defer theirs.Close()
	if _, err := io.Copy(io.Discard, theirs); err != nil {
		t.Error(err)
	}
}

// What is iterated has no samples that a list could name, and needs a worker at least.
func TestIteratedDatasetsHaveNoLists(t *testing.T) {
	l, s := openTurns(t, 0, 2, func(int) uint64 { return 1 })
	if _, err := l.PassOver(order.List{IDs: []int64{0}}, 0, 0); errs.CodeOf(err) != errs.Config {
		t.Errorf("%v", err)
	}
	s.hire(1)
	p, err := l.Pass(0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := turnsWalk(t, p, 0, 9); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}
