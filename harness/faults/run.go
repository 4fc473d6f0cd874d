package faults

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stoker-data/stoker/harness/slownet"
	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
	"github.com/stoker-data/stoker/internal/stagetest/hubserver"
	"github.com/stoker-data/stoker/internal/stagetest/servers"
)

const (
	// Silences are shorter than in production, so that a campaign ends.
	stall    = 3 * time.Second // longer than a busy machine keeps a process waiting
	connect  = time.Second
	patience = time.Second

	ends  = 90 * time.Second // deadline of a fault that ends
	slack = 15 * time.Second // by which a deadline may be missed on a busy machine
	hangs = 4 * time.Minute  // a run that takes longer hangs
)

// Run is one fault with one seed.
type Run struct {
	Lab   *Lab
	Fault Fault
	Seed  uint64

	Proxy    *slownet.Proxy
	Hub      *hubserver.Server // of the run's own, if it is on the Hub; Proxy is before it
	Names    *slownet.Names    // nil: the proxy is reached by its address
	Net      *remote.Net
	Deadline time.Duration
	During   func()       // before the first batch
	Off      atomic.Int64 // of the client's clock, in nanoseconds

	ctx     context.Context
	data    string           // name of the folder
	proxies []*slownet.Proxy // Proxy, and the one before the Hub's storage
	try     int              // of tries, from 0
	puts    int
	began   time.Time
	before  int64 // see mark
	others  sync.WaitGroup
	closer  []func()
	mu      sync.Mutex
	said    []string // under mu
}

// Host is the name that a proxy has in Run.Names.
const Host = "store.example"

// Go runs f beside the run, which waits for its end. f returns soon after ctx ends.
func (r *Run) Go(f func(ctx context.Context)) { r.others.Go(func() { f(r.ctx) }) }

// Own gives the run its own copy of its data, in its own folder, which it may change. Of
// the Hub it has one already.
func (r *Run) Own() {
	if r.Fault.On == Hub {
		return
	}
	from := r.data
	r.data = fmt.Sprintf("own/%s-%d-%d/%s", strings.NewReplacer(" ", "-", "(", "", ")", "").Replace(r.Fault.Name), r.Seed, r.try, from)
	below := os.DirFS(filepath.Join(r.Lab.local, from))
	if from == "many" && r.server().Dir != "" { // as files that were not put: one by one takes too long
		if err := os.CopyFS(filepath.Join(r.server().Dir, r.data), below); err != nil {
			panic(err)
		}
		return
	}
	if err := fs.WalkDir(below, ".", func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			r.Put(name, r.Lab.Bytes(from+"/"+name))
		}
		return err
	}); err != nil {
		panic(err)
	}
}

func (r *Run) server() *servers.Server { return r.Lab.servers[r.Fault.On] }

// Put replaces an object of the run's own data by other contents, with another time.
func (r *Run) Put(name string, data []byte) {
	there := r.data + "/" + name
	if r.Hub != nil {
		r.Hub.Commit(repo, "main", map[string][]byte{there: data})
		return
	}
	server := r.server()
	server.Put(there, data)
	if r.Fault.On == Web { // whose versions are times in seconds
		at := time.Now().Add(time.Duration(r.puts+1) * -time.Hour)
		_ = os.Chtimes(filepath.Join(server.Dir, filepath.FromSlash(there)), at, at)
		r.puts++
	}
}

// Remove removes an object of the run's own data.
func (r *Run) Remove(name string) {
	if r.Hub != nil {
		r.Hub.Commit(repo, "main", map[string][]byte{r.data + "/" + name: nil})
		return
	}
	r.server().Remove(r.data + "/" + name)
}

// gone has the server, or both of the Hub, gone.
func (r *Run) gone() {
	for _, p := range r.proxies {
		p.Pause()
	}
}

// back has it there again.
func (r *Run) back() {
	for _, p := range r.proxies {
		_ = p.Resume()
	}
}

// ranges is how many ranges of the shard the proxies were asked for.
func (r *Run) ranges() (n int64) {
	names := []string{"/" + shard}
	if r.Hub != nil {
		names = append(names, "/"+stored(r.Lab.Bytes(r.data+"/"+shard)))
	}
	for _, p := range r.proxies {
		for path, o := range p.Counts().Objects {
			if slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(path, name) }) {
				n += o.Kinds["range"].Requests
			}
		}
	}
	return n
}

// mark notes what was asked of the shard before it is changed.
func (r *Run) mark() { r.before = r.ranges() }

// Faults is the number of faults that the client reported, of any kind.
func (r *Run) Faults() (n int64) {
	for _, c := range r.Net.Counts() {
		n += c.Faults
	}
	return n
}

// tries is how often a run is made whose fault is not met: another request may overtake
// the one that has it.
const tries = 3

// Do runs a fault.
func Do(ctx context.Context, l *Lab, f Fault, seed uint64) (o Outcome) {
	want, err := l.undisturbed(f.Data)
	if err != nil {
		return Outcome{Fault: f.Name, Wrong: "the undisturbed stream: " + err.Error()}
	}
	for try := range tries {
		var overtaken bool
		if o, overtaken = once(ctx, l, f, seed, try, want); !overtaken {
			break
		}
	}
	return o
}

// once is one run; overtaken means that the fault was not met, and nothing else came of it.
func once(ctx context.Context, l *Lab, f Fault, seed uint64, try int, want string) (o Outcome, overtaken bool) {
	o = Outcome{Fault: f.Name, Seed: strconv.FormatUint(seed, 10)}
	ctx, end := context.WithTimeout(ctx, hangs)
	defer end()
	r := &Run{Lab: l, Fault: f, Seed: seed, try: try, Deadline: f.Deadline, ctx: ctx, data: f.Data}
	if r.Deadline == 0 {
		r.Deadline = ends
	}
	defer func() {
		end()
		r.others.Wait()
		for _, c := range r.closer {
			c()
		}
	}()
	at, err := r.setUp()
	if err != nil {
		o.Wrong = err.Error()
		return o, false
	}
	r.began = time.Now()
	got, err := r.stream(at)
	o.Took = time.Since(r.began)
	o.Met = r.met()
	r.judge(&o, got, want, err)
	o.Said = r.said
	return o, !o.Met && err == nil && got == want
}

// setUp starts the proxy, and says where the store is.
func (r *Run) setUp() (at string, err error) {
	f := r.Fault
	opt := slownet.Options{Seed: r.Seed, ServerTLS: &tls.Config{InsecureSkipVerify: true}} // a server of the lab's own
	if f.Named {
		opt.Listen = "127.0.0.3:0"
		if r.Names, err = slownet.NewNames(); err != nil {
			return "", err
		}
		r.closer = append(r.closer, func() { _ = r.Names.Close() })
	}
	if f.TLS != nil {
		if opt.TLS, err = f.TLS(r.Lab).Server(); err != nil {
			return "", err
		}
	}
	if f.On == Hub {
		err = r.startHub(opt)
	} else {
		opt.Server = r.server().URL
		if r.Proxy, err = slownet.New(opt); err == nil {
			r.proxies = []*slownet.Proxy{r.Proxy}
			r.closer = append(r.closer, func() { _ = r.Proxy.Close() })
		}
	}
	if err != nil {
		return "", err
	}
	at = r.Proxy.URL()
	if f.Named {
		addr := netip.MustParseAddrPort(r.Proxy.Addr())
		r.Names.Set(Host, addr.Addr())
		u, err := url.Parse(at)
		if err != nil {
			return "", err
		}
		u.Host = Host + ":" + u.Port()
		at = u.String()
	}
	if f.Before != nil {
		f.Before(r)
	}
	var rules []string
	if f.Rules != nil {
		rules = f.Rules(r.Seed)
	}
	set := func() {
		for _, p := range r.proxies {
			if wrong := p.SetRules(rules...); wrong != nil {
				panic(wrong)
			}
		}
	}
	if f.Opening {
		set()
	}
	r.During = func() {
		if !f.Opening {
			set()
		}
		if f.During != nil {
			f.During(r)
		}
	}
	return at, err
}

// met says whether the fault occurred.
func (r *Run) met() bool {
	if r.Fault.Met != nil {
		return r.Fault.Met(r)
	}
	return r.ruled()
}

// ruled says whether all rules have had their effect, each at one of the proxies.
func (r *Run) ruled() bool {
	met := map[int]bool{}
	rules := 0
	for _, p := range r.proxies {
		all := p.Counts().Rules
		rules = len(all)
		for i, c := range all {
			met[i] = met[i] || c.Met > 0
		}
	}
	for _, is := range met {
		if !is {
			return false
		}
	}
	return rules > 0
}

// judge compares the result with what was expected.
func (r *Run) judge(o *Outcome, got, want string, err error) {
	f := r.Fault
	place := f.Place
	if place == "" {
		place = "/" + f.Data
	}
	e := errs.From(err)
	switch {
	case !o.Met:
		c := r.Proxy.Counts()
		o.Wrong = fmt.Sprintf("the fault was not met: %+v, statuses %v, %d times no server, faults of the client %d; the stream ended with %v", c.Rules, c.Statuses, c.Unreachable, r.Faults(), err)
	case errors.Is(err, context.DeadlineExceeded), errs.CodeOf(err) == errs.Stalled:
		o.Wrong = fmt.Sprintf("it hangs: %v", err)
	case f.Known != "":
		if err != nil {
			o.Wrong = fmt.Sprintf("expected bytes that differ, and not %v", err)
		} else if got == want {
			o.Wrong = "expected bytes that differ, and they do not"
		}
		o.Undetected = o.Wrong == ""
	case err == nil && f.Code != "":
		o.Wrong = fmt.Sprintf("expected %s, and the stream ended without an error; its bytes are the same: %v", f.Code, got == want)
	case err == nil && got != want:
		o.Wrong = "the stream is another one, and nothing said so"
	case err == nil:
		o.Transparent = true
	case f.Code == "":
		o.Wrong = fmt.Sprintf("expected nothing to be seen, and not %s: %v", e.Code, err)
	case e.Code != f.Code:
		o.Wrong = fmt.Sprintf("expected %s, and not %s: %v", f.Code, e.Code, err)
	case !strings.Contains(e.Where.File+"\n"+e.Where.Shard, place):
		o.Wrong = fmt.Sprintf("the error does not say that it was in %s: %v", place, err)
	case o.Took > r.Deadline+slack:
		o.Wrong = fmt.Sprintf("the error came after %v, and the deadline is %v: %v", o.Took, r.Deadline, err)
	default:
		o.Typed = f.Code
	}
}

// stream reads an epoch, and returns the digest of all that it delivers: ids, in their
// order, and bytes.
func (r *Run) stream(at string) (digest string, err error) {
	r.Net = remote.NewNet(remote.Options{
		Stall: stall, Connect: connect, Patience: patience, Resolver: r.resolver(),
		Now: func() time.Time { return time.Now().Add(time.Duration(r.Off.Load())) },
	})
	defer r.Net.Close()
	ctx := r.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	watch, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { r.Net.Watch(watch, func(line string) { r.says(line) }) })
	defer func() {
		stop()
		watching.Wait()
		if err != nil {
			var told *errs.Error
			text, _ := json.Marshal(errs.From(err))
			r.says(err.Error(), fmt.Sprintf("%+v", err), string(text))
			if errors.As(err, &told) {
				r.says(told.Hint)
			}
		}
	}()
	s := spec.Spec{
		Dataset: spec.Dataset{Path: r.Lab.paths(r.Fault.On, at, r.data)},
		Fields:  r.fields(),
		Order:   spec.Order{Shuffle: "full", Seed: 7}, Batch: spec.Batch{Size: 4}, Workers: 2,
		Fetch: spec.Fetch{Deadline: spec.Duration(r.Deadline)},
	}
	if r.Fault.On != "" {
		s.Dataset.Storage = reached(r.Fault, at)
	}
	shared := loader.NewShared(batch.Heap{}, stats.NewBoard(nil, 32))
	defer shared.Close()
	l, err := loader.Open(ctx, shared, s, loader.Options{Sources: dataset.Sources(r.Net), Progress: func(_, _ int64, what string) { r.says(what) }})
	if err != nil {
		return "", err
	}
	defer l.Close()
	if r.During != nil {
		r.During()
	}
	p, err := l.Pass(0, 0, 0)
	if err != nil {
		return "", err
	}
	defer p.Cancel()
	sum := sha256.New()
	for {
		b, err := p.Next(ctx, 0)
		switch {
		case errors.Is(err, io.EOF):
			r.kept(l)
			return hex.EncodeToString(sum.Sum(nil)), nil
		case err != nil:
			r.kept(l)
			return "", err
		}
		rows(sum, b)
		b.Release()
	}
}

// kept is what a loader shows and what users store.
func (r *Run) kept(l *loader.Loader) {
	for _, v := range []any{l.Spec(), l.State(0, 0), l.Stats(), l.Notes(), r.Net.Troubles(), r.Net.Counts()} {
		text, err := json.Marshal(v)
		r.says(string(text), fmt.Sprint(err))
	}
}
