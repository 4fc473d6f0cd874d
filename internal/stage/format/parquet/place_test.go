package parquet_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format"
	ours "github.com/stoker-data/stoker/internal/stage/format/parquet"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// picture is value i of the files pictures-*.parquet (testdata/parquet/make.py).
func picture(i int) []byte {
	p := make([]byte, 17000+300*i)
	for j := range p {
		p[j] = byte((i + j/500) % 251)
	}
	return p
}

// Values that pyarrow puts side by side into one page or one dictionary are read one
// by one where they are stored in the file unchanged, and with their page otherwise.
func TestPicturesInOnePage(t *testing.T) {
	for kind, alone := range map[string]bool{
		"dict": true, "plain": true, "plain-index": true, "plain-v2": true, "mixed": true,
		"dict-snappy": false, "plain-crc": false, "plain-snappy": false,
	} {
		t.Run(kind, func(t *testing.T) {
			body := stagetest.Unzipped(t, "../../../../testdata/parquet/pictures-"+kind+".parquet.gz")
			read := int64(0)
			src := counting{stagetest.Bytes(body), &read}
			d, err := ours.Open(ctx, src, []string{anywhere}, ours.Options{Store: &index.Store{}})
			stagetest.Must(t, err)
			defer d.Close()
			var s format.Sample
			for id := range d.Index().Len() {
				i := int(id)
				read = 0
				stagetest.Must(t, stagetest.Read(d, src, id, []string{"image"}, &s))
				if !bytes.Equal(s.Fields[0].Data, picture(i)) {
					t.Fatalf("row %d is wrong", i)
				}
				if alone && read != int64(len(picture(i))+4) {
					t.Errorf("row %d: %d bytes are read for %d", i, read, len(picture(i)))
				}
				if f := s.Fields[0]; alone && (f.Unpacked || !bytes.Equal(body[f.Off:][:len(f.Data)], f.Data)) {
					t.Errorf("row %d is not at %d", i, f.Off)
				}
				err := stagetest.Read(d, src, id, []string{"maybe", "label"}, &s)
				switch null := i == 5 || i == 6; {
				case null && errs.CodeOf(err) != errs.MissingField:
					t.Errorf("row %d: %v", i, err)
				case !null:
					stagetest.Must(t, err)
					if !bytes.Equal(s.Fields[0].Data, picture(24-i)) {
						t.Errorf("row %d of maybe is wrong", i)
					}
				}
				if size := d.Size(id, "image"); alone && size != int64(len(picture(i))) || size < 5 {
					t.Errorf("row %d: %d bytes", i, size)
				}
				if n := d.Length(id, "image"); n != -1 && n != int64(len(picture(i))) || alone && n < 0 {
					t.Errorf("row %d has %d bytes, or so the index says", i, n)
				}
			}
			if notes := d.NotesFor(nil); len(notes) > 0 {
				t.Errorf("%q", notes)
			}
			stagetest.Dataset(t, d, src)
		})
	}
}

// What was written over a value since it was indexed is damage, like a page that does
// not hold what its header says; no page that is damaged gets places.
func TestDamageBetweenPictures(t *testing.T) {
	body := stagetest.Unzipped(t, "../../../../testdata/parquet/pictures-plain.parquet.gz")
	file := stagetest.Bytes(body)
	d, err := ours.Open(ctx, file, []string{anywhere}, ours.Options{Store: &index.Store{}})
	stagetest.Must(t, err)
	defer d.Close()
	at := d.Extents(3, []string{"image"}, nil)[0].Off
	for _, change := range []byte{1, 0x80} {
		broken := bytes.Clone(body)
		broken[at+2] ^= change // the value is longer than the file, or than it was
		var s format.Sample
		err := stagetest.Read(d, stagetest.Bytes(broken), 3, []string{"image"}, &s)
		if e := errs.From(err); e.Code != errs.Damaged || e.Where.Sample.Or(-1) != 3 || e.Where.Field != "image" || e.Where.Offset.Or(-1) != at {
			t.Errorf("%v at %+v", e, e.Where)
		}
		anew, err := ours.Open(ctx, stagetest.Bytes(broken), []string{anywhere}, ours.Options{Store: &index.Store{}})
		stagetest.Must(t, err)
		for _, id := range []int64{0, 3, 20} {
			if err := stagetest.Read(anew, stagetest.Bytes(broken), id, []string{"image"}, &s); errs.CodeOf(err) != errs.Damaged {
				t.Errorf("row %d of a damaged page: %v", id, err)
			}
		}
		stagetest.Must(t, stagetest.Read(anew, stagetest.Bytes(broken), 3, []string{"maybe"}, &s))
		stagetest.Must(t, anew.Close())
	}
}

// shot is a picture that no codec makes smaller.
type shot struct {
	Image []byte `parquet:"image,plain"`
	Label int32  `parquet:"label"`
}

func shots(t *testing.T, options ...parquet.WriterOption) (rows []shot, file []byte) {
	t.Helper()
	random := rand.NewChaCha8([32]byte{7})
	for i := range 60 {
		rows = append(rows, shot{make([]byte, 150_000), int32(i)})
		_, _ = random.Read(rows[i].Image)
	}
	var out bytes.Buffer
	w := parquet.NewGenericWriter[shot](&out, append(options, parquet.PageBufferSize(64<<20), parquet.DataPageStatistics(false))...)
	_, err := w.Write(rows)
	stagetest.Must(t, err)
	stagetest.Must(t, w.Close())
	return rows, out.Bytes()
}

// A page of many megabytes is read once while its block is kept, by the first reader
// that needs it, however little is kept; a note says what it costs and how to avoid
// that.
func TestLargePagesAreReadOnce(t *testing.T) {
	for name, codec := range map[string]parquet.WriterOption{
		"snappy": parquet.Compression(&parquet.Snappy), "zstd": parquet.Compression(&parquet.Zstd),
	} {
		for _, keep := range []int64{0, 1} {
			t.Run(fmt.Sprint(name, keep), func(t *testing.T) {
				rows, body := shots(t, codec)
				read := int64(0)
				src := counting{stagetest.Bytes(body), &read}
				d, err := ours.Open(ctx, src, []string{anywhere}, ours.Options{Store: &index.Store{}, Cache: keep})
				stagetest.Must(t, err)
				defer d.Close()
				read = 0
				var s format.Sample
				for id, row := range rows {
					stagetest.Must(t, stagetest.Read(d, src, int64(id), []string{"image"}, &s))
					if !bytes.Equal(s.Fields[0].Data, row.Image) {
						t.Fatalf("row %d is wrong", id)
					}
				}
				if read > int64(len(body))*11/10 {
					t.Errorf("%d bytes are read of a file of %d", read, len(body))
				}
				notes := d.NotesFor([]string{"image", "label"})
				if len(notes) != 1 || !strings.Contains(notes[0], `a row of "image" has 150 kB, but its whole page of 9 MB is read`) || !strings.Contains(notes[0], `compression="none"`) {
					t.Errorf("%q", notes)
				}
				if notes := d.NotesFor([]string{"label"}); len(notes) > 0 {
					t.Errorf("%q", notes)
				}
			})
		}
	}
	_, body := shots(t) // not compressed, with checksums
	d, err := ours.Open(ctx, stagetest.Bytes(body), []string{anywhere}, ours.Options{Store: &index.Store{}})
	stagetest.Must(t, err)
	defer d.Close()
	stagetest.Dataset(t, d, stagetest.Bytes(body))
	if notes := d.NotesFor(nil); len(notes) != 1 || !strings.Contains(notes[0], "write_batch_size=16") || strings.Contains(notes[0], "compression=") {
		t.Errorf("%q", notes)
	}
}

// failing is a source that gives the beginnings of pages only.
type failing struct {
	stagetest.Bytes
	err error
}

func (f failing) ReadAt(ctx context.Context, obj source.Info, p []byte, off int64) error {
	if len(p) > 1<<20 {
		return f.err
	}
	return f.Bytes.ReadAt(ctx, obj, p, off)
}

// What the storage says of a large page reaches the user unchanged, and damage in one
// is reported as damage.
func TestLargePagesThatCanNotBeRead(t *testing.T) {
	_, body := shots(t, parquet.Compression(&parquet.Zstd))
	var s format.Sample
	for _, code := range []errs.Code{errs.Changed, errs.Unreadable} {
		src := failing{stagetest.Bytes(body), errs.New(code, "no such luck")}
		d, err := ours.Open(ctx, src, []string{anywhere}, ours.Options{Store: &index.Store{}})
		stagetest.Must(t, err)
		if err := stagetest.Read(d, src, 3, []string{"image"}, &s); errs.CodeOf(err) != code {
			t.Errorf("%v, want %s", err, code)
		}
		stagetest.Must(t, d.Close())
	}
	body[len(body)/2] ^= 0x55
	clear(body[len(body)/2+1000:][:200_000])
	d, err := ours.Open(ctx, stagetest.Bytes(body), []string{anywhere}, ours.Options{Store: &index.Store{}})
	stagetest.Must(t, err)
	defer d.Close()
	err = stagetest.Read(d, stagetest.Bytes(body), 3, []string{"image"}, &s)
	if e := errs.From(err); e.Code != errs.Damaged || e.Where.Field != "image" || e.Where.Sample.Or(-1) != 3 || e.Where.Offset.Or(-1) != 4 {
		t.Errorf("%v at %+v", err, e.Where)
	}
	stagetest.Must(t, stagetest.Read(d, stagetest.Bytes(body), 3, []string{"label"}, &s))
}
