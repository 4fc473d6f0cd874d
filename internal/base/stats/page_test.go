package stats

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/stagetest"
)

// shared is the folder of the goldens that both languages test.
const shared = "../../../../testdata/stats/"

// second is the moment n seconds after the beginning of the goldens' clock.
func second(n float64) int64 { return int64(n * 1e9) }

// enginePage is a page with something in every table, written through the functions
// that an engine uses, with a clock that does not move.
func enginePage() []byte {
	m := make([]byte, smallRoom.bytes())
	now := second(100)
	p := newPage(m, smallRoom, RoleEngine, 4242, func() int64 { return now })
	lane, reader := p.Worker(LaneWorker), p.Worker(ReaderWorker)
	lane.Turn(Busy, second(101))
	lane.Turn(Input, second(103))
	lane.Turn(Output, second(103.5))
	lane.Turn(Busy, second(104))
	lane.Done(7, 2)
	reader.Turn(Busy, second(100.25))

	s := p.Stream(7, 2, []string{"RandomResizedCrop", "Normalize"})
	s.Read.Add(3*time.Millisecond, 4, 4096)
	s.Read.CPU(100*time.Microsecond, 1)
	s.Read.Blocked(Output, 2*time.Second)
	s.Read.Queue(5)
	s.Read.Queue(2)
	for i := range 10 {
		s.Decode.Add(time.Duration(i+1)*400*time.Microsecond, 1, 0)
		for _, t := range s.Transforms {
			t.Count(1)
		}
	}
	s.Transforms[0].Timed(50 * time.Microsecond)
	s.Transforms[1].Timed(20 * time.Microsecond)
	s.Decode.Blocked(Input, 500*time.Millisecond)
	s.Plan.Add(40*time.Microsecond, 2, 0)
	s.Plan.CPU(15*time.Microsecond, 1)
	s.Plan.Blocked(Output, 1500*time.Millisecond)
	s.Batch.Add(10*time.Microsecond, 2, 1<<20)
	s.Deliver.Add(90*time.Microsecond, 2, 1<<20)
	s.Wait.Add(700*time.Millisecond, 2, 0)
	s.Wait.Blocked(Output, 1300*time.Millisecond)
	s.Decoded(Ways{Own: 6, Libjpeg: 2})
	s.Decoded(Ways{Own: 1, Go: 1})
	s.Bad.Store(1)
	now = second(105)
	s.Delivered(Progress{Epoch: 3, Step: 8, Samples: 8, Batches: 2, Ready: 1, Slots: 4, Leased: 1, Memory: 4 << 20, Begins: true, First: second(0.5)})
	for i := range int64(5) { // one more than there is room for
		s.Span(Span{
			Loader: 7, Epoch: 3, Step: 4 + i, Steps: 1, Begun: second(101) + i, Filled: second(102) + i, Delivered: second(103) + i,
			Asked: second(99) + i, Rows: 4,
		})
	}
	other := p.Stream(8, 1, nil)
	other.Close()
	return m
}

var smallRoom = room{workers: 3, loaders: 2, stages: 8, spans: 4}

// dump writes the words of a page that are not 0, and where they are, for people.
func dump(m []byte) string {
	var b strings.Builder
	fmt.Fprintf(&b, "words %d\n", len(m)/word)
	w := func(i int) int64 { return int64(binary.LittleEndian.Uint64(m[i*word:])) }
	where := func(i int) string {
		for _, t := range []struct {
			name string
			at   int
		}{{"worker", hWorkers}, {"loader", hLoaders}, {"span", hSpans}} {
			begin, n, each := int(w(t.at))/word, int(w(t.at+1)), int(w(t.at+2))/word
			if i < begin || i >= begin+n*each {
				continue
			}
			text, rest := fmt.Sprintf("%s %d", t.name, (i-begin)/each), (i-begin)%each
			if first, stage := int(w(hStages))/word, int(w(hStageBytes))/word; t.at == hLoaders && rest >= first {
				text, rest = fmt.Sprintf("%s stage %d", text, (rest-first)/stage), (rest-first)%stage
			}
			return fmt.Sprintf("%s word %d", text, rest)
		}
		return fmt.Sprintf("header word %d", i)
	}
	for i := range len(m) / word {
		if v := w(i); v != 0 {
			fmt.Fprintf(&b, "%5d %20d  %s\n", i, v, where(i))
		}
	}
	return b.String()
}

// load is the page that a dump is of.
func load(t *testing.T, name string) []byte {
	f, err := os.Open(filepath.Join("testdata", shared, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Scan()
	var n, i int
	if _, err := fmt.Sscanf(lines.Text(), "words %d", &n); err != nil {
		t.Fatal(err)
	}
	m := make([]byte, n*word)
	for lines.Scan() {
		var v int64
		if _, err := fmt.Sscan(lines.Text(), &i, &v); err != nil {
			t.Fatal(err)
		}
		binary.LittleEndian.PutUint64(m[i*word:], uint64(v))
	}
	return m
}

// reading is all that a page says, at the moment now, as JSON.
func reading(t fataler, m []byte, now int64) string {
	t.Helper()
	r := opened(t, m)
	defer r.Close()
	h := r.Header()
	out := map[string]any{
		"header": map[string]any{
			"version": h.Version, "pid": h.PID, "role": h.Role, "started_s": h.Started, "updated_s": h.Updated,
			"written": h.Written, "unseen": h.Unseen, "cpu_s": h.CPUSeconds,
		},
		"workers": r.workers(now), "loaders": r.loaders(now),
	}
	var spans []map[string]int64
	for _, s := range r.Spans() {
		spans = append(spans, map[string]int64{
			"loader": s.Loader, "epoch": s.Epoch, "step": s.Step, "steps": s.Steps, "begun": s.Begun, "filled": s.Filled,
			"delivered": s.Delivered, "asked": s.Asked, "got": s.Got, "rows": s.Rows,
		})
	}
	out["spans"] = spans
	b, err := json.MarshalIndent(out, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}

// fataler is a test, or a case of one.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

// opened is a reader of a page in a file.
func opened(t fataler, m []byte) *Reader {
	t.Helper()
	r, err := tryOpen(t, m)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func tryOpen(t fataler, m []byte) (*Reader, error) {
	t.Helper()
	f, err := os.CreateTemp("", "page")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := f.Write(m); err != nil {
		t.Fatal(err)
	}
	return OpenFile(f.Name())
}

func TestTheEnginesPage(t *testing.T) {
	m := enginePage()
	stagetest.Golden(t, shared+"engine.words", []byte(dump(m)))
	stagetest.Golden(t, shared+"engine.json", []byte(reading(t, m, second(106))))
}

// client.words is written by the tests of the client.
func TestTheClientsPage(t *testing.T) {
	stagetest.Golden(t, shared+"client.json", []byte(reading(t, load(t, "client.words"), second(106))))
}

// A newer writer appends words to entries and tables to the page: an older reader
// sees what it knows, unchanged. Likewise a newer reader of an older page, whose
// entries end where they ended then.
func TestOlderAndNewerPages(t *testing.T) {
	page := enginePage()
	want := reading(t, page, second(106))
	rapid.Check(t, func(t *rapid.T) {
		grown := func(words, least int, name string) int {
			return rapid.IntRange(least, words+9).Draw(t, name)
		}
		r := relayout{
			header: headerWords + rapid.IntRange(0, 9).Draw(t, "header"),
			worker: grown(workerWords, wEnd, "worker"), loader: grown(loaderWords, lJPEGEnd, "loader"),
			stage: grown(stageWords, sBuckets+buckets, "stage"), span: grown(spanWords, pEnd, "span"),
			tail: rapid.IntRange(0, 99).Draw(t, "tail"), junk: rapid.Int64Range(1, 1<<60).Draw(t, "junk"),
		}
		m := r.of(page)
		binary.LittleEndian.PutUint64(m[hVersion*word:], Version) // the golden says it
		if diff := cmp.Diff(want, reading(t, m, second(106))); diff != "" {
			t.Fatal(diff)
		}
	})
}

// relayout is a page of the same entries at other places and of other lengths,
// in words; what was appended is junk.
type relayout struct {
	header, worker, loader, stage, span, tail int
	junk                                      int64
}

func (r relayout) of(page []byte) []byte {
	old := func(i int) int { return int(binary.LittleEndian.Uint64(page[i*word:])) }
	entry := r.loader + int(smallRoom.stages)*r.stage
	workers := r.header
	loaders := workers + int(smallRoom.workers)*r.worker
	spans := loaders + int(smallRoom.loaders)*entry
	n := spans + int(smallRoom.spans)*r.span + r.tail
	m := make([]byte, n*word)
	for i := range n {
		binary.LittleEndian.PutUint64(m[i*word:], uint64(r.junk))
	}
	move := func(to, toWords, from, fromWords int) {
		copy(m[to*word:(to+min(toWords, fromWords))*word], page[from*word:])
	}
	move(0, headerWords, 0, headerWords)
	set := func(i int, values ...int) {
		for k, v := range values {
			binary.LittleEndian.PutUint64(m[(i+k)*word:], uint64(v))
		}
	}
	set(hSize, n*word, r.header*word)
	set(hWorkers, workers*word, int(smallRoom.workers), r.worker*word)
	set(hLoaders, loaders*word, int(smallRoom.loaders), entry*word)
	set(hStages, r.loader*word, int(smallRoom.stages), r.stage*word, sBuckets*word, min(r.stage-sBuckets, bucketWords))
	set(hSpans, spans*word, int(smallRoom.spans), r.span*word)
	for i := range int(smallRoom.workers) {
		move(workers+i*r.worker, r.worker, old(hWorkers)/word+i*workerWords, workerWords)
	}
	for i := range int(smallRoom.loaders) {
		to, from := loaders+i*entry, old(hLoaders)/word+i*old(hLoaderBytes)/word
		move(to, r.loader, from, loaderWords)
		for k := range int(smallRoom.stages) {
			move(to+r.loader+k*r.stage, r.stage, from+loaderWords+k*stageWords, stageWords)
		}
	}
	for i := range int(smallRoom.spans) {
		move(spans+i*r.span, r.span, old(hSpans)/word+i*spanWords, spanWords)
	}
	return m
}

// Whatever a page contains, reading it ends, with an answer or an error.
func TestHostilePages(t *testing.T) {
	page := enginePage()
	rapid.Check(t, func(t *rapid.T) {
		m := append([]byte(nil), page...)
		for range rapid.IntRange(1, 4).Draw(t, "words") {
			at := rapid.OneOf(rapid.IntRange(0, headerWords-1), rapid.IntRange(0, len(m)/word-1)).Draw(t, "at")
			v := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-8, 9000), rapid.Just(int64(1)<<62)).Draw(t, "value")
			binary.LittleEndian.PutUint64(m[at*word:], uint64(v))
		}
		m = m[:rapid.OneOf(rapid.Just(len(m)), rapid.IntRange(0, len(m))).Draw(t, "length")]
		r, err := tryOpen(t, m)
		if err != nil {
			return
		}
		defer r.Close()
		r.Header()
		r.Workers()
		r.Loaders()
		r.Spans()
	})
}

func TestAHalfWrittenRowIsLeftOut(t *testing.T) {
	m := enginePage()
	all := opened(t, m)
	workers, loaders, spans := len(all.Workers()), len(all.Loaders()), len(all.Spans())
	all.Close()
	add := func(at int) { binary.LittleEndian.PutUint64(m[at*word:], binary.LittleEndian.Uint64(m[at*word:])+1) }
	w := func(i int) int { return int(binary.LittleEndian.Uint64(m[i*word:])) / word }
	add(w(hWorkers) + wSeq)
	add(w(hLoaders) + lSeq2)
	add(w(hSpans) + pSeq)
	r := opened(t, m)
	defer r.Close()
	if a, b, c := len(r.Workers()), len(r.Loaders()), len(r.Spans()); a != workers-1 || b != loaders-1 || c != spans-1 {
		t.Errorf("%d workers, %d loaders, %d spans of %d, %d, %d: each lacks one", a, b, c, workers, loaders, spans)
	}
}
