package loader

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
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

// Small samples of every format whose Parse only points, filled by readers and by
// lanes: what Plain is worth.
func BenchmarkSmall(b *testing.B) {
	all := stores(b)
	all["tar"] = Dataset{Path: Paths{shards(b, 2000, 500)}}
	all["tfrecord"], all["beton"] = Dataset{Path: Paths{smallRecords(b)}}, Dataset{Path: Paths{smallPages(b)}}
	for _, name := range []string{"tar", "tfrecord", "lmdb folder", "beton"} {
		for _, way := range []string{"lanes", "readers"} {
			b.Run(strings.ReplaceAll(name, " ", "-")+"/"+way, func(b *testing.B) {
				s := ground(b)
				spec := Spec{Dataset: all[name], Order: Order{Shuffle: order.Full}, Batch: BatchSpec{Size: 64}, Workers: 2}
				if name == "tar" {
					spec.Fields = []Field{{Name: "txt"}, {Name: "cls", Decode: "int"}}
				} else {
					spec.Fields = nameFields(b, s, spec.Dataset)
				}
				l := open(b, s, spec)
				if !l.small {
					b.Fatal("it is not filled by readers")
				}
				fillBy(l, way == "readers")
				samples := 0
				begin := cpu()
				b.ReportAllocs()
				for b.Loop() {
					samples += tenEpochs(b, l)
				}
				b.ReportMetric(float64(cpu()-begin)/1e3/float64(samples), "cpu-us/sample")
				b.ReportMetric(float64(samples)/b.Elapsed().Seconds(), "samples/s")
			})
		}
	}
}

// small are 2,000 samples of 100 to 900 bytes.
func small() (out [][]byte) {
	for i := range 2000 {
		out = append(out, random(100+i*37%800, uint64(i)))
	}
	return out
}

// smallRecords is a TFRecord file of small samples.
func smallRecords(b *testing.B) string {
	b.Helper()
	var out []byte
	sum := func(p []byte) uint32 { // rotated and shifted
		c := crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli))
		return (c>>15 | c<<17) + 0xa282ead8
	}
	for _, p := range small() {
		head := binary.LittleEndian.AppendUint64(nil, uint64(len(p)))
		out = binary.LittleEndian.AppendUint32(append(out, head...), sum(head))
		out = binary.LittleEndian.AppendUint32(append(out, p...), sum(p))
	}
	path := filepath.Join(b.TempDir(), "small.tfrecord")
	if err := os.WriteFile(path, out, 0o644); err != nil {
		b.Fatal(err)
	}
	return path
}

// smallPages is an FFCV file of small samples: a field of bytes, and none of numbers.
func smallPages(b *testing.B) string {
	b.Helper()
	const page, head, field = 1 << 21, 24, 1 + 16 + 1024
	all := small()
	le := binary.LittleEndian
	out := make([]byte, page)
	var table []byte
	for i, p := range all {
		if at := len(out); at/page != (at+len(p)-1)/page {
			out = append(out, make([]byte, page-at%page)...)
		}
		row := out[head+field+16*i:]
		le.PutUint64(row, uint64(len(out)))
		le.PutUint64(row[8:], uint64(len(p)))
		for _, v := range []int{i, len(out), len(p)} {
			table = le.AppendUint64(table, uint64(v))
		}
		out = append(out, p...)
	}
	le.PutUint16(out, 2)
	le.PutUint16(out[2:], 1)
	le.PutUint32(out[4:], page)
	le.PutUint64(out[8:], uint64(len(all)))
	out[head] = 3
	copy(out[head+1:], "raw")
	out = append(out, make([]byte, page-len(out)%page)...)
	le.PutUint64(out[16:], uint64(len(out)))
	path := filepath.Join(b.TempDir(), "small.beton")
	if err := os.WriteFile(path, append(out, table...), 0o644); err != nil {
		b.Fatal(err)
	}
	return path
}

// tenEpochs takes ten epochs from a loader.
func tenEpochs(b *testing.B, l *Loader) (samples int) {
	b.Helper()
	for n := range int64(10) {
		p, err := l.Pass(n, 0, 0)
		if err != nil {
			b.Fatal(err)
		}
		for {
			batch, err := p.Next(context.Background(), 0)
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				b.Fatal(err)
			}
			samples += batch.Rows
			batch.Release()
		}
		p.Cancel()
	}
	return samples
}
