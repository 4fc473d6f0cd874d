package loader

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stoker-data/stoker/internal/base/stats"
)

// What statistics cost: one loader counts in every other pass and does not in the
// others, and the CPU of each pass is that of the process. (Two loaders, one of
// which counts, differ by several percent in either direction, because their memory
// is at other addresses.) %-more is the median over all pairs, %-more-quartile
// compares the lower quartiles, on which other programs have the least influence;
// books-% is how much more the CPU of the stages is than the kernel's (less:
// negative). Chance orders each pair. There is one lane: what two lanes on the
// threads of one core take from each other changes by more than everything that is
// counted. Reads that have to wait are not included: their readers count in any
// case. Passes last a tenth of a second and more, as epochs do: beginning one, in a
// process that has slept, costs Go's scheduler a millisecond that no stage has.
//
//	go test ./internal/loader -run '^$' -bench StatsCost -benchtime 50x
func BenchmarkStatsCost(b *testing.B) {
	photo := func(b *testing.B) Spec {
		root := b.TempDir()
		for i, name := range []string{"astronaut", "chelsea", "coffee"} {
			text, err := os.ReadFile("../../testdata/photos/" + name + ".jpg")
			if err != nil {
				b.Fatal(err)
			}
			dir := filepath.Join(root, string(rune('a'+i)))
			if err := os.MkdirAll(dir, 0o755); err != nil {
				b.Fatal(err)
			}
			for n := range 8 {
				if err := os.WriteFile(filepath.Join(dir, string(rune('a'+n))+".jpg"), text, 0o644); err != nil {
					b.Fatal(err)
				}
			}
		}
		return imageSpec(root)
	}
	train := ops(b, `[{"op":"RandomResizedCrop","size":[224,224]},{"op":"RandomHorizontalFlip"},{"op":"ToTensor"},{"op":"Normalize","mean":[0.5,0.5,0.5],"std":[0.2,0.2,0.2]}]`)
	for _, c := range []struct {
		name  string
		often int
		spec  func(b *testing.B) Spec
	}{
		{"photos", 12, func(b *testing.B) Spec {
			s := photo(b)
			s.Fields[0].Transform, s.Batch.Size = train, 16
			return s
		}},
		{"thumbnails", 24, func(b *testing.B) Spec {
			s := imageSpec(photos(b, 96))
			s.Fields[0].Transform, s.Batch.Size = ops(b, `[{"op":"RandomResizedCrop","size":[64,64]}]`), 32
			return s
		}},
		{"arrays", 64, func(b *testing.B) Spec {
			s := windows(b, b.TempDir(), 4096, nil)
			s.Batch.Size = 64
			return s
		}},
		{"tokens", 10, func(b *testing.B) Spec {
			path := filepath.Join(b.TempDir(), "train.bin")
			if err := os.WriteFile(path, random(16<<20, 1), 0o644); err != nil {
				b.Fatal(err)
			}
			return Spec{
				Dataset: Dataset{Path: Paths{path}, DType: "uint16", Window: Window{Length: 2048, Next: true}},
				Fields: []Field{
					{Name: "x", From: "tokens", DType: "int64", View: View{To: new(-1)}},
					{Name: "y", From: "tokens", DType: "int64", View: View{From: new(1)}},
				},
				Batch: BatchSpec{Size: 16}, Workers: 2,
			}
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			spec := c.spec(b)
			spec.Workers = 1
			ground := ground(b)
			ground.Page = stats.NewLocal(stats.RoleEngine)
			l := open(b, ground, spec)
			list := times(int(l.Len()), c.often)
			counting := l.stats
			turn := func(on bool) float64 {
				ground.mu.Lock() // between passes: no lane and no reader has anything to do
				if l.stats = stats.Off(); on {
					l.stats = counting
				}
				l.filler.Stats = l.stats
				ground.quiet = !on
				ground.mu.Unlock()
				begin := cpu()
				p, err := l.PassOver(list, 0, 0)
				if err != nil {
					b.Fatal(err)
				}
				p.Bundle(16)
				emptied(b, p)
				return float64(cpu() - begin)
			}
			for range 3 {
				turn(false)
				turn(true)
			}
			before := counting.Snapshot()
			var more, offs, ons []float64
			var off, on float64
			for b.Loop() {
				first := rand.IntN(2) == 0
				a := turn(first)
				b := turn(!first)
				if first {
					a, b = b, a
				}
				off, on = off+a, on+b
				offs, ons = append(offs, a), append(ons, b)
				more = append(more, b/a-1)
			}
			slices.Sort(more)
			slices.Sort(offs)
			slices.Sort(ons)
			at := len(ons) / 4
			b.ReportMetric(100*(ons[at]/offs[at]-1), "%-more-quartile")
			b.ReportMetric(100*more[len(more)/2], "%-more")
			b.ReportMetric(100*(on/off-1), "%-more-summed")
			all := func(s stats.Snapshot) float64 {
				return s.Plan.CPUSeconds + s.Read.CPUSeconds + s.Decode.CPUSeconds + s.Batch.CPUSeconds + s.Deliver.CPUSeconds
			}
			b.ReportMetric(100*((all(counting.Snapshot())-all(before))*1e9/on-1), "books-%")
			b.ReportMetric(on/1e3/float64(len(more)*len(list.IDs)), "cpu-us/sample")
		})
	}
}
