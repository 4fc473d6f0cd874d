package need

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/tool/show"
)

var update = flag.Bool("update", false, "rewrite the goldens")

const mib = 1 << 20

// photos is a machine of eight cores that decodes photographs: a millisecond each, so
// that its seven lanes give 7,000 a second.
func photos() Measured {
	return Measured{
		Rate: 7000, CPU: 0.001, Bound: Lanes, Lanes: 7, Cores: 7, Busy: 7, OnCore: 0.99,
		Read: 50e-6, Decode: 700e-6, Transform: 200e-6, Batch: 50e-6,
		Samples: 1_400_000, ReadBytes: 100_000, GPUBytes: 150_536, AsBytes: 150_536, Pictures: true, PerFile: true, Whole: true,
		Storage: 4000 * mib, Memory: 64 << 30, Path: "data/my photos", Size: 224,
	}
}

func with(m Measured, change func(*Measured)) Measured {
	change(&m)
	return m
}

// cases are measurements and needs; testdata has what is said of each.
var cases = map[string]struct {
	Target
	Measured
}{
	"enough":     {Target{PerGPU: 1000, GPUs: 4}, photos()},
	"barely":     {Target{PerGPU: 6800, GPUs: 1}, photos()},
	"cores":      {Target{PerGPU: 2500, GPUs: 8}, photos()},
	"one-gpu":    {Target{PerGPU: 12000, GPUs: 2}, photos()},
	"disturbed":  {Target{PerGPU: 2000, GPUs: 4}, with(photos(), func(m *Measured) { m.OnCore = 0.7 })},
	"slow-texts": {Target{PerGPU: 40, GPUs: 2}, with(photos(), func(m *Measured) { m.Rate, m.CPU, m.Lanes, m.Pictures, m.Storage = 17.4, 0.06, 1, false, 0 })},
	"floats": {Target{PerGPU: 2000, GPUs: 4}, with(photos(), func(m *Measured) {
		m.Transform, m.Float, m.GPUBytes = 400e-6, 200e-6, 602_120
		m.Decode = 500e-6
	})},
	"large-dataset": {Target{PerGPU: 2500, GPUs: 8}, with(photos(), func(m *Measured) { m.Storage = 1000 * mib })},
	"cached":        {Target{PerGPU: 800, GPUs: 8}, with(photos(), func(m *Measured) { m.Storage = 500 * mib })},
	"held":          {Target{PerGPU: 2500, GPUs: 8}, with(photos(), func(m *Measured) { m.Storage, m.Samples = 1000*mib, 50_000 })},
	"slow-disk": {Target{PerGPU: 2500, GPUs: 2}, with(photos(), func(m *Measured) {
		m.Rate, m.Bound, m.Storage, m.Whole = 1000, Reads, 110*mib, false
	})},
	"small-files": {Target{PerGPU: 2500, GPUs: 2}, with(photos(), func(m *Measured) { m.Rate, m.Bound, m.Storage = 1000, Reads, 900*mib })},
	"small-reads": {Target{PerGPU: 2500, GPUs: 2}, with(photos(), func(m *Measured) {
		m.Rate, m.Bound, m.Storage, m.PerFile, m.Pictures = 1000, Reads, 900*mib, false, false
	})},
	"tiny-batches": {Target{PerGPU: 2_000_000, GPUs: 2}, with(photos(), func(m *Measured) {
		*m = Measured{Rate: 1_500_000, CPU: 1e-6, Bound: Between, Lanes: 7, Cores: 7, Busy: 1.5, Samples: 10_000_000, ReadBytes: 128, GPUBytes: 128, AsBytes: 128, Storage: 4000 * mib, Memory: 64 << 30}
	})},
}

func TestText(t *testing.T) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := Weigh(c.Target, c.Measured).WriteText(&b); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), b.String()); diff != "" {
				t.Errorf("%s (go test -update rewrites it):\n%s", path, diff)
			}
			for line := range strings.Lines(b.String()) {
				if len(line) > show.Width+1 && !strings.Contains(line, "try:") {
					t.Errorf("%d characters: %s", len(line), line)
				}
			}
		})
	}
}

// The figures of the plan, computed by hand for 8 GPUs that train 2,500 a second each.
func TestFigures(t *testing.T) {
	p := Weigh(Target{PerGPU: 2500, GPUs: 8}, photos())
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"needed", p.Total, 20000},
		{"given, per GPU", p.GivesPerGPU, 875},
		{"share", p.Share, 0.35},
		{"wasted", p.Wasted, 0.65},
		{"an epoch as needed", p.EpochNeeded, 70},
		{"an epoch as given", p.EpochLoaded, 200},
		{"cores needed", p.CoresNeeded, 20},
		{"cores missing", float64(p.CoresMissing), 13},
		{"GPUs of a server", float64(p.GPUsPerServer), 2},
		{"servers", float64(p.Servers), 4},
		{"read", p.ReadPerSecond, 2e9},
		{"of an epoch", p.DatasetBytes, 140e9},
		{"to the GPUs", p.GPUPerSecond, 3.01072e9},
		{"to each", p.EachGPUPerSec, 0.37634e9},
	} {
		if math.Abs(c.got-c.want) > 1e-9*c.want {
			t.Errorf("%s: %g, not %g", c.name, c.got, c.want)
		}
	}
	// Decoding is 700 of 1,000 us: without it, a sample costs 300.
	for _, c := range p.Changes {
		if c.Name == "smaller pictures" && (math.Abs(c.Rate-7000/0.3) > 1e-6 || !c.Most || !c.Enough) {
			t.Errorf("%+v", c)
		}
	}
}

// Servers are counted in whole GPUs: three machines give what five GPUs need together,
// but each feeds one GPU only.
func TestServersFeedWholeGPUs(t *testing.T) {
	for _, c := range []struct {
		perGPU                  float64
		gpus, perServer, server int
	}{
		{4200, 5, 1, 5},
		{3500, 5, 2, 3},
		{7000, 1, 1, 1},
		{7000, 3, 1, 3},
		{7001, 3, 0, 0},
		{100, 64, 64, 1},
		{100, 140, 70, 2},
	} {
		p := Weigh(Target{PerGPU: c.perGPU, GPUs: c.gpus}, photos())
		if p.GPUsPerServer != c.perServer || p.Servers != c.server {
			t.Errorf("%d GPUs of %g: %d servers with %d", c.gpus, c.perGPU, p.Servers, p.GPUsPerServer)
		}
	}
}

// Whatever is measured, the plan's figures fit together and are numbers that JSON has;
// and if nothing is missing, nothing has to change.
func TestFiguresFitTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		positive := func(name string) float64 { return rapid.Float64Range(1e-7, 1e7).Draw(t, name) }
		cost := func(name string) float64 { return rapid.Float64Range(0, 0.1).Draw(t, name) }
		m := Measured{
			Rate: positive("rate"), CPU: cost("cpu"), Bound: rapid.SampledFrom([]string{Lanes, Cores, Reads, Between}).Draw(t, "bound"),
			Lanes: rapid.IntRange(1, 256).Draw(t, "lanes"), Cores: rapid.IntRange(1, 256).Draw(t, "cores"),
			Read: cost("read"), Decode: cost("decode"), Transform: cost("transform"), Batch: cost("batch"),
			Samples: rapid.Int64Range(0, 1e12).Draw(t, "samples"), ReadBytes: cost("bytes") * 1e9, GPUBytes: positive("gpu"), Pictures: rapid.Bool().Draw(t, "pictures"),
			Storage: cost("storage") * 1e12, Memory: cost("memory") * 1e12,
		}
		m.Float, m.AsBytes = m.Transform/2, m.GPUBytes/4
		target := Target{PerGPU: positive("need"), GPUs: rapid.IntRange(1, 1e6).Draw(t, "gpus")}
		p := Weigh(target, m)
		if _, err := json.Marshal(p); err != nil {
			t.Fatal(err)
		}
		if err := p.WriteText(&bytes.Buffer{}); err != nil {
			t.Fatal(err)
		}
		switch {
		case p.Enough() != (p.Wasted == 0), p.Enough() && !p.StorageTooSlow && len(p.Changes) > 0:
			t.Fatalf("enough, and %g wasted, with %d changes", p.Wasted, len(p.Changes))
		case p.EpochLoaded < p.EpochNeeded*(1-1e-12):
			t.Fatalf("an epoch takes %g, less than the GPUs need", p.EpochLoaded)
		case float64(p.CoresMissing+m.Cores) < p.CoresNeeded*(1-1e-6) && p.CoresNeeded < 1e9:
			t.Fatalf("%d cores and %d more are fewer than %g", m.Cores, p.CoresMissing, p.CoresNeeded)
		case p.Servers > 0 && p.Servers*p.GPUsPerServer < target.GPUs:
			t.Fatalf("%d servers with %d are fewer than %d GPUs", p.Servers, p.GPUsPerServer, target.GPUs)
		}
		first := true
		for _, c := range p.Changes {
			if c.Enough && !first {
				t.Fatalf("%s is enough, and not among the first", c.Name)
			}
			if first = first && c.Enough; c.Rate != 0 && c.Rate < m.Rate*(1-1e-9) {
				t.Fatalf("%s gives %g, and now it is %g", c.Name, c.Rate, m.Rate)
			}
		}
	})
}
