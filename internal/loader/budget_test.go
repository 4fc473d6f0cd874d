package loader

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/stage/order"
)

// However small the read-ahead limit is, every format gives the same stream: the
// bytes that a sample needs are read even if they exceed it, in whatever order its
// extents are stored, and with the next epoch waiting for room at the same time. So does
// any limit for what is planned, where the storage is far.
func TestAnyBudgetForReadingAhead(t *testing.T) {
	s := ground(t)
	all := stores(t)
	for name, d := range largePages(t) {
		all[name] = d
	}
	for name, d := range all {
		t.Run(name, func(t *testing.T) {
			fields := nameFields(t, s, d)
			for _, shuffle := range []order.Shuffle{order.None, order.Full, order.BlockWise} {
				spec := Spec{Dataset: d, Batch: BatchSpec{Size: 5}, Workers: 2, Order: Order{Shuffle: shuffle}, Fields: fields}
				if shuffle == order.BlockWise {
					spec.Order.Window = 8
				}
				var want []string
				for _, c := range []struct {
					Options
					ahead Bytes
				}{
					{Options{ReadAhead: 1 << 30}, 0},
					{Options{ReadAhead: 5000}, 0},
					{Options{ReadAhead: 1}, 0},
					{Options{ReadAhead: 1, Wrap: overLink}, 1},
					{Options{ReadAhead: 5000, Wrap: overLink}, 20_000},
					{Options{Wrap: overLink}, 0},
				} {
					spec.Fetch.Ahead = c.ahead
					l := open(t, s, spec, c.Options)
					var got []string
					for epoch := range int64(2) {
						got = append(got, texts(walkAll(t, l, epoch, 0, 0))...)
					}
					l.Close()
					if want == nil {
						want = got
					}
					if !slices.Equal(got, want) {
						t.Errorf("%s with %d and %d bytes: another stream", shuffle, c.ReadAhead, c.ahead)
					}
				}
			}
		})
	}
}

// Three hundred pictures in one page of 39 MB, as pyarrow writes them, with their
// labels in another: the page is larger than what is read ahead.
func TestAPageOfManyPictures(t *testing.T) {
	type row struct {
		Image []byte `parquet:"image,plain"`
		Label int64  `parquet:"label"`
	}
	random := rand.NewChaCha8([32]byte{3})
	rows := make([]row, 300)
	for i := range rows {
		rows[i] = row{make([]byte, 130_000), int64(i)}
		_, _ = random.Read(rows[i].Image)
	}
	path := filepath.Join(t.TempDir(), "pictures.parquet")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := parquet.NewGenericWriter[row](f, parquet.Compression(&parquet.Snappy), parquet.PageBufferSize(64<<20))
	_, err = w.Write(rows)
	if err = errors.Join(err, w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	s := ground(t)
	for _, shuffle := range []order.Shuffle{order.None, order.Full} {
		l := open(t, s, Spec{
			Dataset: Dataset{Path: Paths{path}}, Batch: BatchSpec{Size: 16}, Workers: 2, Order: Order{Shuffle: shuffle},
			Fields: []Field{{Name: "image", Decode: "bytes"}, {Name: "label"}},
		})
		p, err := l.Pass(0, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for {
			b, err := p.Next(context.Background(), time.Minute)
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			labels := rowsOf(b, b.Columns[1], mem.Int64)
			for i, image := range looseRows(b, b.Columns[0]) {
				if !bytes.Equal(image, rows[binary.LittleEndian.Uint64(labels[i])].Image) {
					t.Errorf("the picture of label %v is another", labels[i])
				}
				n++
			}
			b.Release()
		}
		if n < len(rows) {
			t.Errorf("%d rows", n)
		}
		if notes := strings.Join(l.Notes(), "\n"); !strings.Contains(notes, `its whole page of 40 MB is read`) {
			t.Errorf("%q", notes)
		}
		l.Close()
	}
}

// largePages are files of pages, chunks and blocks that many samples share, and that
// are larger than what the tests read ahead, some with a small one beside it.
func largePages(t testing.TB) map[string]Dataset {
	all := map[string]Dataset{"tar gzip": {Path: Paths{zipped(t, shards(t, 40, 40)+"/s-000.tar")}}}
	for _, kind := range []string{"dict", "dict-snappy", "plain", "plain-crc", "plain-snappy", "mixed"} {
		name := "pictures-" + kind + ".parquet"
		all["parquet "+kind] = Dataset{Path: Paths{unzipped(t, "../../testdata/parquet/"+name+".gz", name)}}
	}
	return all
}

// zipped is a file, gzipped.
func zipped(t testing.TB, path string) string {
	t.Helper()
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err = z.Write(body)
	if err == nil {
		err = z.Close()
	}
	if err == nil {
		path = filepath.Join(t.TempDir(), "data.tar.gz")
		err = os.WriteFile(path, out.Bytes(), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}
