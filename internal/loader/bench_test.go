package loader

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stoker-data/stoker/internal/stage/order"
)

// cpu is the processor time of this process, ns.
func cpu() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

// One batch of 16 windows of 2,049 tokens, uint16 to int64, x and y as two views
// of one column, from 64 MiB of tokens in the page cache.
func BenchmarkTokens(b *testing.B) {
	path := filepath.Join(b.TempDir(), "train.bin")
	if err := os.WriteFile(path, random(64<<20, 1), 0o644); err != nil {
		b.Fatal(err)
	}
	l := open(b, ground(b), Spec{
		Dataset: Dataset{Path: Paths{path}, DType: "uint16", Window: Window{Length: 2048, Next: true, Stride: 16}},
		Fields: []Field{
			{Name: "x", From: "tokens", DType: "int64", View: View{To: new(-1)}},
			{Name: "y", From: "tokens", DType: "int64", View: View{From: new(1)}},
		},
		Order: Order{Shuffle: order.Full}, Batch: BatchSpec{Size: 16}, Workers: 2,
	})
	p, err := l.Pass(0, 0, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Cancel()
	b.SetBytes(16 * 2048 * 2)
	b.ReportAllocs()
	var begin, n int64
	for b.Loop() {
		if n == 0 {
			begin = cpu()
		}
		batch, err := p.Next(context.Background(), 0)
		if err != nil {
			b.Fatal(err)
		}
		batch.Release()
		if n++; n == p.Steps()-8 {
			b.StopTimer()
			p.Cancel()
			if p, err = l.Pass(0, 0, 0); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	}
	spent := float64(cpu()-begin) / float64(n)
	b.ReportMetric(spent/1e3, "cpu-us/batch")
	b.ReportMetric(16*2048*1e3/spent, "Mtokens/cpu-s")
}
