package engine

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/crew"
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/deliver"
)

// hire takes over the socket to a Python worker that the client has started.
func (s *session) hire(m *wire.Message, fd int, came bool) ([]deliver.Envelope, error) {
	l, err := s.loader(m.Loader)
	switch {
	case !came:
		return nil, errs.New(errs.Incompatible, "message %q came without a socket", m.Type)
	case err == nil && l.Workers() == nil:
		err = errs.New(errs.Config, "loader %d has no Python workers", m.Loader)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	if err := l.Workers().Hire(fd, m.PID, m.Place); err != nil {
		return nil, err
	}
	return one(&wire.Message{Type: wire.TypeHired, Loader: m.Loader}), nil
}

// begun reads the Specs of datasets whose samples the engine begins.
func begun(all []wire.Begins) (out []loader.Begin, err error) {
	for _, b := range all {
		s, err := spec.Read(b.Spec)
		if err != nil {
			return nil, err
		}
		out = append(out, loader.Begin{Member: b.Member, Spec: s})
	}
	return out, nil
}

// nextOf is the next batch of a pass, or what the client has to do before there can be
// one.
func (s *session) nextOf(p *pass, deadline time.Duration) (*loader.Batch, *wire.Message, error) {
	l, err := s.loader(p.loader)
	if err != nil || l.Workers() == nil {
		b, err := p.Next(context.Background(), deadline)
		return b, nil, err
	}
	workers := l.Workers()
	for {
		news := workers.News()
		if ask := asks(workers, p.loader); ask != nil {
			return nil, ask, nil
		}
		ctx, stop := context.WithCancel(context.Background())
		go func() {
			select {
			case <-news:
				stop()
			case <-ctx.Done():
			}
		}()
		b, err := p.Next(ctx, deadline)
		if errs.CodeOf(err) == errs.Stalled {
			err = workers.Stalled(err, deadline)
		}
		interrupted := ctx.Err() != nil
		stop()
		if b == nil && interrupted && err == ctx.Err() { //nolint:errorlint // Next returns it as it is
			continue
		}
		return b, nil, err
	}
}

// showStuck tells a client that waits for a batch, once, of a worker that has been at one
// piece of work for so long.
func (s *session) showStuck(waiting context.Context, req int64, workers *crew.Crew, slow time.Duration) {
	every := time.NewTicker(max(slow/8, 10*time.Millisecond))
	defer every.Stop()
	for {
		select {
		case <-waiting.Done():
			return
		case <-every.C:
			if x := workers.Stuck(slow); x != nil {
				stuck := &wire.Stuck{PID: x.PID, Worker: x.Place, What: x.What, S: x.For.Seconds(), Text: x.Stack}
				s.send(one(&wire.Message{Type: wire.TypeProgress, Req: req, Stuck: stuck}))
				return
			}
		}
	}
}

// asks is what the trainer has to do for its workers; nil: nothing.
func asks(workers *crew.Crew, id int64) *wire.Message {
	missing, died := workers.Wanted()
	if missing == 0 {
		return nil
	}
	ask := &wire.Message{Type: wire.TypeHire, Loader: id, Missing: missing}
	for _, d := range died {
		ask.Died = append(ask.Died, wire.Death(d))
	}
	return ask
}
