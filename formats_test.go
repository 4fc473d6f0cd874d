package stoker_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/jpeg"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"

	stoker "github.com/stoker-data/stoker"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/tool/pack"
)

// labelled is one sample, whatever it is written as.
type labelled struct {
	Image []byte `parquet:"image"`
	Label int64  `parquet:"label"`
}

// pictures are n JPEGs, no two alike, in three classes, in the order of a folder.
func pictures(tb testing.TB, n int) (out []labelled) {
	tb.Helper()
	for i := range n {
		img := image.NewRGBA(image.Rect(0, 0, 40+i%7, 36+i%5))
		for y := range img.Rect.Dy() {
			for x := range img.Rect.Dx() {
				img.Set(x, y, color.RGBA{uint8(x * 6), uint8(y*5 + i), uint8(i * 11), 255})
			}
		}
		var b bytes.Buffer
		if err := jpeg.Encode(&b, img, nil); err != nil {
			tb.Fatal(err)
		}
		out = append(out, labelled{b.Bytes(), int64(i * 3 / n)})
	}
	return out
}

func written(tb testing.TB, path string, body []byte) string {
	tb.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, body, 0o644)); err != nil {
		tb.Fatal(err)
	}
	return path
}

// asFolder writes samples as files, a folder for each class.
func asFolder(tb testing.TB, samples []labelled) string {
	root := tb.TempDir()
	for i, s := range samples {
		written(tb, fmt.Sprintf("%s/class%d/%04d.jpg", root, s.Label, i), s.Image)
	}
	return root
}

// tarOf writes samples as a shard of WebDataset's.
func tarOf(tb testing.TB, samples []labelled) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(name string, body []byte) {
		err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(body)), Mode: 0o644})
		if _, more := w.Write(body); err != nil || more != nil {
			tb.Fatal(err, more)
		}
	}
	for i, s := range samples {
		add(fmt.Sprintf("%04d.jpg", i), s.Image)
		add(fmt.Sprintf("%04d.cls", i), fmt.Append(nil, s.Label))
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// records writes samples as TFRecords of tf.train.Example: field 1 of each message
// but for a feature's list, which is field 1 of bytes and field 3 of numbers.
func records(samples []labelled) (out []byte) {
	message := func(field byte, body ...byte) []byte {
		return append(binary.AppendUvarint([]byte{field<<3 | 2}, uint64(len(body))), body...)
	}
	feature := func(name string, list []byte) []byte {
		return message(1, append(message(1, []byte(name)...), message(2, list...)...)...)
	}
	sum := func(p []byte) uint32 { // of TFRecord: rotated and shifted
		c := crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli))
		return (c>>15 | c<<17) + 0xa282ead8
	}
	for _, s := range samples {
		features := append(feature("image", message(1, message(1, s.Image...)...)),
			feature("label", message(3, message(1, byte(s.Label))...))...)
		example := message(1, features...)
		head := binary.LittleEndian.AppendUint64(nil, uint64(len(example)))
		out = append(out, head...)
		out = binary.LittleEndian.AppendUint32(out, sum(head))
		out = append(out, example...)
		out = binary.LittleEndian.AppendUint32(out, sum(example))
	}
	return out
}

// forms are the same samples in every form that holds pictures and labels.
func forms(tb testing.TB, samples []labelled) map[string]stoker.Dataset {
	tb.Helper()
	dir, half := tb.TempDir(), len(samples)/2+3
	root := asFolder(tb, samples)
	zip, err := zstd.NewWriter(nil)
	if err != nil {
		tb.Fatal(err)
	}
	defer zip.Close()
	var table bytes.Buffer
	w := parquet.NewGenericWriter[labelled](&table, parquet.MaxRowsPerRowGroup(7))
	if _, err := w.Write(samples); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	paths := map[string]stoker.Paths{
		"folder": {root},
		"tar":    {written(tb, dir+"/a.tar", tarOf(tb, samples[:half])), written(tb, dir+"/b.tar", tarOf(tb, samples[half:]))},
		"tar.zst": {
			written(tb, dir+"/a.tar.zst", zip.EncodeAll(tarOf(tb, samples[:half]), nil)),
			written(tb, dir+"/b.tar.zst", zip.EncodeAll(tarOf(tb, samples[half:]), nil)),
		},
		"TFRecord": {written(tb, dir+"/a.tfrecord", records(samples[:half])), written(tb, dir+"/b.tfrecord", records(samples[half:]))},
		"Parquet":  {written(tb, dir+"/all.parquet", table.Bytes())},
	}
	for name, opt := range map[string]pack.Options{
		"packed tar":           {Output: pack.OutputTar},
		"packed tar, zstd":     {Output: pack.OutputTar, Compress: "zstd"},
		"packed TFRecord":      {Output: pack.OutputTFRecord},
		"packed TFRecord, gz":  {Output: pack.OutputTFRecord, Compress: "gzip"},
		"packed from Parquet":  {Output: pack.OutputTar},
		"packed from TFRecord": {Output: pack.OutputTar, Compress: "lz4"},
	} {
		from := paths["folder"]
		switch name {
		case "packed from Parquet":
			from = paths["Parquet"]
		case "packed from TFRecord":
			from = paths["TFRecord"]
		}
		opt.Name, opt.ShardSize = "s", 8<<10
		dst := filepath.Join(tb.TempDir(), "packed")
		if _, err := pack.Run(context.Background(), pack.Config{Dataset: stoker.Dataset{Path: from}, Dst: dst, Options: opt}); err != nil {
			tb.Fatalf("%s: %v", name, err)
		}
		paths[name] = stoker.Paths{dst}
	}
	out := map[string]stoker.Dataset{}
	for name, p := range paths {
		out[name] = stoker.Dataset{Path: p}
	}
	return out
}

// The same samples are the same epochs whatever they are stored as: ids, what is
// padding, labels and pixels after random transforms, rank by rank and step by
// step.
func TestEpochsOfTheSameSamplesAreEqual(t *testing.T) {
	samples := pictures(t, 41)
	all := forms(t, samples)
	spec := train("", 5)
	spec.Fields = spec.Fields[:2]
	spec.Fields[0].From, spec.Fields[1].From = "image;jpg", "label;cls"
	for _, shuffle := range []order.Shuffle{stoker.ShuffleNone, stoker.ShuffleFull} {
		for _, ranks := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s, %d", shuffle, ranks), func(t *testing.T) {
				spec := spec
				spec.Order.Shuffle = shuffle
				spec.Dataset = all["folder"]
				want := epochs(t, world(t, spec, ranks), samples)
				for name, d := range all {
					spec.Dataset = d
					if got := epochs(t, world(t, spec, ranks), samples); !slices.Equal(got, want) {
						t.Errorf("%s: %x, and of the folder %x", name, got, want)
					}
				}
			})
		}
	}
}

// epochs are digests of what each rank gets in each of two epochs. Labels are those
// of the samples.
func epochs(t *testing.T, ranks []*stoker.Loader, samples []labelled) (out []uint64) {
	t.Helper()
	for range 2 {
		for _, l := range ranks {
			h := xxhash.New()
			seen := 0
			for b, err := range l.Batches(context.Background()) {
				if err != nil {
					t.Fatal(err)
				}
				pixels, err1 := b.Uint8("image")
				labels, err2 := b.Int64("label")
				if err := errors.Join(err1, err2); err != nil {
					t.Fatal(err)
				}
				for i, id := range b.IDs() {
					if seen++; labels.Data[i] != samples[id].Label {
						t.Errorf("sample %d has label %d", id, labels.Data[i])
					}
				}
				head, err := json.Marshal([]any{b.Epoch, b.Step, b.IDs(), b.Valid(), pixels.Shape})
				if err != nil {
					t.Fatal(err)
				}
				_, _ = h.Write(head)
				_, _ = h.Write(pixels.Data)
			}
			if seen < len(samples)/len(ranks) {
				t.Errorf("%d samples in an epoch", seen)
			}
			out = append(out, h.Sum64())
		}
	}
	return out
}
