package tfrecord_test

import (
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/format/tfrecord"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// BenchmarkRead reads pictures of 110 KB with their labels from a file in the page
// cache: the read, the CRC and the Example, without a lane or a batch.
func BenchmarkRead(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	var payloads [][]byte
	for i := range 1000 {
		p := make([]byte, 110_000)
		for j := range p {
			p[j] = byte(r.Uint32())
		}
		payloads = append(payloads, example(feat{"image/encoded", p}, feat{"image/class/label", []int64{int64(i)}}))
	}
	path := b.TempDir() + "/x.tfrecord"
	if err := os.WriteFile(path, framed(payloads...), 0o600); err != nil {
		b.Fatal(err)
	}
	src := source.NewFile()
	defer src.Close()
	b.Run("index", func(b *testing.B) {
		b.SetBytes(110_000 * 1000)
		for b.Loop() {
			d, err := tfrecord.Open(ctx, src, []string{path}, tfrecord.Options{Store: &index.Store{}})
			if err != nil {
				b.Fatal(err)
			}
			_ = d.Close()
		}
	})
	d := open(b, src, path)
	defer d.Close()
	rd := format.NewReader(d, src)
	b.Run("samples", func(b *testing.B) {
		b.SetBytes(110_000)
		b.ReportAllocs()
		var s format.Sample
		id := int64(0)
		for b.Loop() {
			id = (id + 7) % 1000
			if err := rd.Read(ctx, id, []string{"image/encoded", "image/class/label"}, &s); err != nil {
				b.Fatal(err)
			}
		}
	})
}
