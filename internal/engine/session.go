package engine

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/crew"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/deliver"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
	"github.com/stoker-data/stoker/internal/stream"
)

// session is the loaders, passes and leased slots of one client.
type session struct {
	conn     *deliver.Conn
	arena    *deliver.Arena
	shared   *loader.Shared
	suspects []wire.Suspect
	net      *remote.Net // of all loaders, which share what hosts accept

	sending sync.Mutex // keeps messages about freed slots before all later ones

	mu      sync.Mutex
	loaders map[int64]*loader.Loader
	nets    map[int64]*remote.Net // the part of net that a loader uses
	passes  map[int64]*pass
	leased  map[int]*loader.Batch // by slot
	last    int64
}

type pass struct {
	*loader.Pass
	loader int64
}

func newSession(conn *deliver.Conn, arena *deliver.Arena, shared *loader.Shared, suspects []wire.Suspect) *session {
	return &session{
		conn: conn, arena: arena, shared: shared, suspects: suspects, net: remote.NewNet(remote.Options{}),
		loaders: map[int64]*loader.Loader{}, nets: map[int64]*remote.Net{}, passes: map[int64]*pass{}, leased: map[int]*loader.Batch{},
	}
}

// serve answers requests until the client is gone, which is io.EOF, or sends
// something that is not a frame. Requests that may wait are answered in goroutines,
// so that one loader does not wait for another. A message that cannot be decoded
// gets an error as its answer: it belongs to one loader, and the engine serves all
// of them.
func (s *session) serve() error {
	for {
		m, err := s.conn.Read()
		if bad := (*wire.BadMessage)(nil); errors.As(err, &bad) {
			s.answer(&bad.Message, func(*wire.Message) ([]deliver.Envelope, error) { return nil, undecoded(bad) })
			continue
		}
		if err != nil {
			return err
		}
		switch m.Type {
		case wire.TypeOpen:
			go s.answer(m, s.open)
		case wire.TypePass:
			go s.answer(m, s.begin) // it may have to make the order of its epoch first
		case wire.TypeNext:
			go s.answer(m, s.next)
		case wire.TypeTable:
			go s.answer(m, s.table)
		case wire.TypeAsk:
			go s.answer(m, s.ask)
		case wire.TypeStats:
			s.answer(m, s.stats)
		case wire.TypeWorker:
			fd, ok := s.conn.Take() // belongs to this message, before the next one is read
			go s.answer(m, func(m *wire.Message) ([]deliver.Envelope, error) { return s.hire(m, fd, ok) })
		case wire.TypeDismiss:
			if l, err := s.loader(m.Loader); err == nil && l.Workers() != nil {
				l.Workers().Dismiss()
			}
		case wire.TypeCancel:
			s.cancel(m)
		case wire.TypeClose:
			s.close(m.Loader)
		default:
			s.answer(m, func(*wire.Message) ([]deliver.Envelope, error) {
				return nil, errs.New(errs.Incompatible, "unknown message %q", m.Type)
			})
		}
	}
}

// undecoded is the error of a message whose values have the wrong type.
func undecoded(bad *wire.BadMessage) error {
	var kind *json.UnmarshalTypeError
	if !errors.As(bad.Err, &kind) {
		return errs.New(errs.Incompatible, "cannot decode a message").Because(bad.Err).
			Try("install one version of stoker: `pip install --force-reinstall stoker`, and unset STOKER_ENGINE")
	}
	given := strings.TrimPrefix(kind.Value, "number ")
	return errs.New(errs.Config, "%s is %s: it must be %s", kind.Field, given, spec.Wanted(kind.Type, given))
}

// answer sends the result of f for a request, or its error.
func (s *session) answer(m *wire.Message, f func(*wire.Message) ([]deliver.Envelope, error)) {
	out, err := f(m)
	if len(out) == 0 && err == nil {
		return // f has sent its answer itself
	}
	if err != nil {
		out = []deliver.Envelope{{Message: &wire.Message{Type: wire.TypeError, Error: wire.FromError(err)}}}
	}
	out[len(out)-1].Message.Req = m.Req
	s.send(out)
}

// send writes messages, after the list of the slots that were freed. If the client
// is gone, serve ends.
func (s *session) send(messages []deliver.Envelope) {
	s.sending.Lock()
	defer s.sending.Unlock()
	var out []deliver.Envelope
	for _, id := range s.arena.Gone() {
		out = append(out, deliver.Envelope{Message: &wire.Message{Type: wire.TypeSlot, Slot: int64(id)}})
	}
	_ = s.conn.Write(append(out, messages...)...)
}

func one(m *wire.Message, fds ...int) []deliver.Envelope {
	return []deliver.Envelope{{Message: m, FDs: fds}}
}

func (s *session) open(m *wire.Message) ([]deliver.Envelope, error) {
	spec, err := spec.Read(m.Spec)
	if err != nil {
		return nil, err
	}
	var told time.Time
	var workers *crew.Options
	var begins []loader.Begin
	if m.Crew != nil && !m.Crew.IDs {
		workers = &crew.Options{Workers: m.Crew.Workers, Whole: m.Crew.Whole, Turns: m.Crew.Turns, Iterates: m.Crew.Iterates}
		if begins, err = begun(m.Crew.Begins); err != nil {
			return nil, err
		}
	}
	opening, opened := context.WithCancel(context.Background())
	defer opened()
	net := s.net.Part() // a server of another loader is none that this one waits for
	defer s.showWaiting(opening, m.Req, net).Stop()
	l, err := loader.Open(context.Background(), s.shared, spec, loader.Options{
		Progress: func(done, total int64, what string) {
			if now := time.Now(); now.Sub(told) > 200*time.Millisecond {
				told = now
				_ = s.conn.Write(one(&wire.Message{Type: wire.TypeProgress, Req: m.Req, Done: done, Total: total, What: what})...)
			}
		},
		Sources: dataset.Sources(net),
		Network: net,
		Notice:  notice,
		Deadly:  s.deadly,
		Stored:  m.Stored,
		Bare:    m.Bare,
		Mixes:   m.Mixes,
		Workers: workers,
		Begins:  begins,
		IDs:     m.Crew != nil && m.Crew.IDs,
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.loaders[l.ID()], s.nets[l.ID()] = l, net
	s.mu.Unlock()
	at := l.State(0, 0)
	return one(&wire.Message{
		Type: wire.TypeOpened, Loader: l.ID(), Samples: l.Len(), Digest: l.Digest(), Pipeline: l.Pipeline(),
		Classes: jsontext.Names(l.Classes()), Format: l.Format(), Fields: fields(l.Fields()), Lanes: l.Stats().Lanes, Notes: l.Notes(),
		Order: at.Order, Processing: at.Processing, Blocks: at.Blocks, Sources: l.Sources(), Altered: l.Altered(), Unlike: l.Unlike(), Stride: l.Stride(),
		Contents: contents(l.Contents()),
	}), nil
}

// columns converts the columns of a batch to those of a message.
func columns(all []batch.Column) []wire.Column {
	out := make([]wire.Column, len(all))
	for i, c := range all {
		out[i] = wire.Column(c)
	}
	return out
}

// fields converts the columns of a dataset to those of a message.
func fields(all []dataset.Column) []wire.Field {
	out := make([]wire.Field, len(all))
	for i, c := range all {
		out[i] = c.Told()
	}
	return out
}

// contents are what there was of datasets, as it travels.
func contents(all []dataset.Contents) []wire.Contents {
	out := make([]wire.Contents, len(all))
	for i, s := range all {
		out[i] = wire.Contents(s)
	}
	return out
}

// deadly is the samples of a dataset that engines were working on when they died.
func (s *session) deadly(digest string) map[int64]int {
	out := map[int64]int{}
	for _, x := range s.suspects {
		if x.Digest == digest {
			out[x.Sample] += x.Deaths
		}
	}
	return out
}

func (s *session) loader(id int64) (*loader.Loader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.loaders[id]; l != nil {
		return l, nil
	}
	return nil, errs.New(errs.Config, "no loader %d is open", id)
}

func (s *session) begin(m *wire.Message) ([]deliver.Envelope, error) {
	l, err := s.loader(m.Loader)
	if err != nil {
		return nil, err
	}
	l.Refuse(m.Refused)
	var p *loader.Pass
	if list := m.List; list != nil {
		p, err = l.PassOver(order.List{IDs: list.IDs, Cuts: list.Cuts, Items: list.Items, Place: list.Place, Item: list.Item, Rank: list.Rank}, m.Epoch, m.Step)
	} else {
		p, err = l.Pass(m.Epoch, m.Position, m.Step, points(m.Points)...)
	}
	if err != nil {
		return nil, err
	}
	p.Bundle(m.Bundle)
	s.mu.Lock()
	s.last++
	id := s.last
	s.passes[id] = &pass{p, m.Loader}
	s.mu.Unlock()
	return one(&wire.Message{Type: wire.TypePassed, Pass: id, Epoch: m.Epoch, Steps: p.Steps()}), nil
}

func (s *session) next(m *wire.Message) ([]deliver.Envelope, error) {
	s.mu.Lock()
	p := s.passes[m.Pass]
	var net *remote.Net
	if p != nil {
		net = s.nets[p.loader]
	}
	s.mu.Unlock()
	if p == nil {
		return nil, errs.New(errs.Config, "no pass %d", m.Pass)
	}
	if m.Before != nil {
		p.Before(m.Before.Rows, m.Before.Bad)
	}
	deadline := time.Duration(m.Timeout) * time.Millisecond
	waiting, stop := context.WithCancel(context.Background())
	late := s.showWaiting(waiting, m.Req, net)
	if deadline > 0 {
		go s.keepAlive(waiting, m.Req, p.Pass, deadline)
	}
	if l, err := s.loader(p.loader); err == nil && l.Workers() != nil && m.Slow > 0 {
		go s.showStuck(waiting, m.Req, l.Workers(), time.Duration(m.Slow)*time.Millisecond)
	}
	b, ask, err := s.nextOf(p, deadline)
	stop()
	late.Stop()
	if ask != nil {
		return one(ask), nil
	}
	if errors.Is(err, io.EOF) {
		s.mu.Lock()
		delete(s.passes, m.Pass)
		s.mu.Unlock()
		return one(&wire.Message{Type: wire.TypeEnd, Pass: m.Pass}), nil
	}
	if err != nil {
		return nil, err
	}
	sending := b.Sending()
	s.mu.Lock()
	s.leased[b.Slot.ID] = b
	s.mu.Unlock()
	var out []deliver.Envelope
	if b.Slot.Fresh {
		b.Slot.Fresh = false
		out = append(out, deliver.Envelope{
			Message: &wire.Message{Type: wire.TypeSlot, Slot: int64(b.Slot.ID), Bytes: int64(len(b.Slot.Mem))}, FDs: []int{b.Slot.FD},
		})
	}
	answer := &wire.Message{
		Type: wire.TypeBatch, Pass: m.Pass, Epoch: b.Epoch, Step: b.Step, Position: b.Position,
		Slot: int64(b.Slot.ID), Rows: b.Rows, Data: columns(b.Columns), Structure: b.Structure,
		Sum: b.Sum.String(), Real: b.Real,
	}
	if b.Mixed != nil {
		mixed := wire.Mixed(*b.Mixed)
		answer.Mixed = &mixed
	}
	if b.Counts != nil {
		answer.Type, answer.Sum, answer.Real = wire.TypeBatches, "", 0
	}
	for _, c := range b.Counts {
		answer.Parts = append(answer.Parts, wire.Part{Position: c.After, Sum: c.Sum.String(), Real: c.Real})
	}
	for _, bad := range b.Bad {
		answer.Bad = append(answer.Bad, wire.BadPlace{Place: bad.Place, Sample: bad.Sample, Put: bad.Put, Error: wire.FromError(bad.Err)})
	}
	answer.Req = m.Req
	s.send(append(out, deliver.Envelope{Message: answer}))
	sending.Done()
	return nil, nil
}

// keepAlive tells the client that samples still arrive, as long as they do, while
// it waits for a batch that takes longer than its deadline.
func (s *session) keepAlive(ctx context.Context, req int64, p *loader.Pass, deadline time.Duration) {
	every := time.NewTicker(max(deadline/4, 10*time.Millisecond))
	defer every.Stop()
	seen := p.Moved()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			if now := p.Moved(); now > seen {
				seen = now
				s.send(one(&wire.Message{Type: wire.TypeProgress, Req: req, What: "samples"}))
			}
		}
	}
}

// showWaiting tells a client what its request waits for, if that is a server: its patience
// begins again with each line. Requests that are answered soon cost a timer, no goroutine.
func (s *session) showWaiting(ctx context.Context, req int64, net *remote.Net) *time.Timer {
	return time.AfterFunc(time.Second, func() {
		net.Watch(ctx, func(line string) {
			s.send(one(&wire.Message{Type: wire.TypeProgress, Req: req, Waiting: line}))
		})
	})
}

// points are where the workers of a pass begin.
func points(all []wire.Point) []crew.Point {
	out := make([]crew.Point, len(all))
	for i, p := range all {
		out[i] = crew.Point(p)
	}
	return out
}

// leasedIDs lists the slots that the client holds.
func (s *session) leasedIDs(yield func(int) bool) {
	s.mu.Lock()
	ids := make([]int, 0, len(s.leased))
	for id := range s.leased {
		ids = append(ids, id)
	}
	s.mu.Unlock()
	for _, id := range ids {
		if !yield(id) {
			return
		}
	}
}

// back takes a slot that the client has released.
func (s *session) back(id int, drop bool) {
	s.mu.Lock()
	b := s.leased[id]
	delete(s.leased, id)
	s.mu.Unlock()
	switch {
	case b == nil:
	case drop:
		b.Discard()
	default:
		b.Release()
	}
}

func (s *session) cancel(m *wire.Message) {
	s.mu.Lock()
	p := s.passes[m.Pass]
	delete(s.passes, m.Pass)
	s.mu.Unlock()
	switch {
	case p == nil:
	case m.Before == nil:
		p.Cancel()
	default:
		p.CancelAfter(m.Step, m.Before.Rows, m.Before.Bad)
	}
}

func (s *session) close(id int64) {
	s.mu.Lock()
	l := s.loaders[id]
	delete(s.loaders, id)
	delete(s.nets, id)
	for n, p := range s.passes {
		if p.loader == id {
			delete(s.passes, n)
		}
	}
	s.mu.Unlock()
	if l != nil {
		l.Close()
	}
}

// table sends columns of the dataset as JSON in a shared memory of their own: they
// may have millions of rows.
func (s *session) table(m *wire.Message) ([]deliver.Envelope, error) {
	l, err := s.loader(m.Loader)
	if err != nil {
		return nil, err
	}
	columns, err := l.Table(m.Columns)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(columns)
	if err != nil {
		return nil, err
	}
	slot, err := s.arena.Alloc(int64(len(b)))
	if err != nil {
		return nil, err
	}
	copy(slot.Mem, b)
	defer s.arena.Free(slot)
	s.send(one(&wire.Message{Type: wire.TypeTable, Req: m.Req, Bytes: int64(len(b))}, slot.FD))
	return nil, nil
}

// ask answers a question about the order.
func (s *session) ask(m *wire.Message) ([]deliver.Envelope, error) {
	l, err := s.loader(m.Loader)
	if err != nil {
		return nil, err
	}
	if m.Ask == nil {
		return nil, errs.New(errs.Incompatible, "message %q has no question", m.Type)
	}
	q := stream.Question{What: m.Ask.What, Epoch: m.Ask.Epoch, From: m.Ask.From, To: m.Ask.To, Receipts: m.Ask.Receipts}
	var b json.RawMessage
	if q.What == "changed" {
		var before *loader.Loader
		if before, err = s.loader(m.Ask.Loader); err == nil {
			b, err = l.Changed(before, q.From)
		}
	} else {
		b, err = l.Answer(q)
	}
	if err != nil {
		return nil, err
	}
	return one(&wire.Message{Type: wire.TypeTold, Answer: b}), nil
}

// told is a loader's statistics, and their changes since the statistics that the
// client received before, or since the loader was opened.
type told struct {
	stats.Snapshot
	Rates      stats.Interval `json:"rates"`
	ProcessCPU float64        `json:"process_cpu_s"` // of the whole engine process, all loaders together, as the kernel counts
}

func (s *session) stats(m *wire.Message) ([]deliver.Envelope, error) {
	l, err := s.loader(m.Loader)
	if err != nil {
		return nil, err
	}
	now := l.Stats()
	var since struct {
		Before    stats.Snapshot `json:"before"`
		WaitShare *float64       `json:"wait_share"` // as the client saw it
	}
	if len(m.Stats) > 0 {
		if err := json.Unmarshal(m.Stats, &since); err != nil {
			return nil, errs.New(errs.Incompatible, "cannot read the numbers of a message").Because(err)
		}
	}
	share := -1.0
	if since.WaitShare != nil {
		share = *since.WaitShare
	}
	b, err := json.Marshal(told{now, now.SinceWaiting(since.Before, share), stats.ProcessCPU().Seconds()})
	if err != nil {
		return nil, err
	}
	return one(&wire.Message{Type: wire.TypeStats, Stats: b}), nil
}
