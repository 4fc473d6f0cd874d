package gather

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/tool/doctor/evidence"
	"github.com/stoker-data/stoker/internal/tool/doctor/judge"
)

// onDevice has the ten and the hundred and ten batches of snapshots also on a device: 9 ms
// of copies, 3 of transforms and 8 that the loop's stream waited, a batch.
func onDevice() (a, b stats.Snapshot) {
	a, b = snapshots()
	for _, s := range []*stats.Snapshot{&a, &b} {
		n := float64(s.Batches)
		s.Wait.BusySeconds, s.Wait.OutputSeconds = n*0.0001, n*0.02
		s.Device = []stats.StageSnapshot{
			{Name: "copies", BusySeconds: n * 0.009, WaitedSeconds: n * 0.006, Bytes: int64(n) * 36e6, Items: int64(n)},
			{Name: "transforms", BusySeconds: n * 0.003, WaitedSeconds: n * 0.002, Items: int64(n)},
			{Name: "decoding"},
		}
	}
	return a, b
}

func TestDeviceOfAPage(t *testing.T) {
	d := LoopOfPage(onDevice()).Device
	for _, c := range []struct {
		name string
		got  evidence.Figure
		want float64
	}{
		{"copies", d.Copies, 0.009},
		{"transforms", d.Transforms, 0.003},
		{"decoding", d.Decoding, 0},
		{"waited", d.Waited, 0.008},
		{"bytes", d.Bytes, 36e6},
		{"rate", d.Rate, 4e9},
	} {
		if !c.got.Known() || math.Abs(c.got.Value-c.want) > 1e-9*max(1, c.want) {
			t.Errorf("%s: %g [%s], not %g", c.name, c.got.Value, c.got.Source, c.want)
		}
	}
	if got := LoopOfPage(snapshots()).Device; !got.IsZero() {
		t.Errorf("no device, and it has %+v", got)
	}
}

// The verdict is the device's only where it is busy for most of a step, the loop's stream
// waits for it, and the loop does not wait longer for the engine.
func TestCopiesToTheDevice(t *testing.T) {
	judged := func(change func(a, b *stats.Snapshot)) string {
		a, b := onDevice()
		change(&a, &b)
		return judge.Judge(evidence.Evidence{Machine: evidence.Machine{Cores: evidence.Measured(8, "test")}, Loops: []evidence.Loop{LoopOfPage(a, b)}}).Verdict.Name
	}
	each := func(f func(s *stats.Snapshot, n float64)) func(a, b *stats.Snapshot) {
		return func(a, b *stats.Snapshot) { f(a, float64(a.Batches)); f(b, float64(b.Batches)) }
	}
	for _, c := range []struct {
		name   string
		change func(a, b *stats.Snapshot)
		want   bool
	}{
		{"as it is", each(func(*stats.Snapshot, float64) {}), true},
		{"the batches are there in time", each(func(s *stats.Snapshot, n float64) { s.Device[0].WaitedSeconds, s.Device[1].WaitedSeconds = 0, 0 }), false},
		{"the device has little to do", each(func(s *stats.Snapshot, n float64) { s.Device[0].BusySeconds = n * 0.004 }), false},
		{"the engine is later still", each(func(s *stats.Snapshot, n float64) { s.Wait.BusySeconds = n * 0.01 }), false},
		{"no device", each(func(s *stats.Snapshot, n float64) { s.Device = nil }), false},
	} {
		if got := judged(c.change); (got == judge.ForDevice) != c.want {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}

// What only the client's page has is put to the loader of the engine's page that has its
// number.
func TestTheClientsPageAlso(t *testing.T) {
	engine := stats.NewLocal(stats.RoleEngine)
	s := engine.Stream(7, 2, nil)
	defer s.Close()
	p := NewPages()
	p.open[20], p.parents[20], p.clients[10] = engine.Reader(), 10, recordedClient(t)
	defer func() { _ = p.clients[10].Close() }()
	p.Look(nil, false)
	var found []stats.StageSnapshot
	for _, one := range p.Latest {
		found = one.Device
	}
	if len(found) != 3 || found[0].Name != "copies" || found[0].Items != 4 || found[1].Bytes != 8<<20 || found[2].Name != "decoding" {
		t.Errorf("%+v", found)
	}
}

// recordedClient is the page that testdata/stats has of a client.
func recordedClient(t *testing.T) *stats.Reader {
	f, err := os.Open("../../../../testdata/stats/client.words")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	var n, i int
	var v int64
	lines.Scan()
	if _, err := fmt.Sscanf(lines.Text(), "words %d", &n); err != nil {
		t.Fatal(err)
	}
	m := make([]byte, 8*n)
	for lines.Scan() {
		if _, err := fmt.Sscan(lines.Text(), &i, &v); err != nil {
			t.Fatal(err)
		}
		binary.LittleEndian.PutUint64(m[8*i:], uint64(v))
	}
	path := filepath.Join(t.TempDir(), "page")
	if err := os.WriteFile(path, m, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := stats.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
