package parquet_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/parquet-go/parquet-go"
	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/stage/format"
	ours "github.com/stoker-data/stoker/internal/stage/format/parquet"
	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// row is written by parquet-go, which shares no code with this package, in the
// encodings that it has tags for.
type row struct {
	ID    int64     `parquet:"id,delta"`
	Small int32     `parquet:"small,delta"`
	Split float64   `parquet:"split,split"`
	Flag  bool      `parquet:"flag"`
	Word  string    `parquet:"word,dict"`
	Front string    `parquet:"front,delta"`
	Raw   []byte    `parquet:"raw"`
	Maybe *int64    `parquet:"maybe,optional"`
	Note  *string   `parquet:"note,optional,dict"`
	List  []float32 `parquet:"list,list"`
	More  []int32   `parquet:"more"`
	In    struct {
		X uint32 `parquet:"x,dict"`
	} `parquet:"in"`
}

func drawRow(t *rapid.T, i int) row {
	r := row{
		ID: rapid.Int64().Draw(t, "id"), Small: rapid.Int32Range(-5, 5).Draw(t, "small"), Split: float64(rapid.Int32().Draw(t, "split")) / 8,
		Flag: rapid.Bool().Draw(t, "flag"), Word: rapid.SampledFrom([]string{"", "a", "bc"}).Draw(t, "word"),
		Front: fmt.Sprintf("front %d", i/rapid.IntRange(1, 3).Draw(t, "front")), Raw: rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "raw"),
		List: rapid.SliceOfN(rapid.Map(rapid.Int16(), func(v int16) float32 { return float32(v) }), 0, 5).Draw(t, "list"),
		More: rapid.SliceOfN(rapid.Int32(), 0, 40).Draw(t, "more"),
	}
	if rapid.Bool().Draw(t, "there") {
		v, s := rapid.Int64().Draw(t, "maybe"), r.Word+"!"
		r.Maybe, r.Note = &v, &s
	}
	r.In.X = rapid.Uint32().Draw(t, "x")
	return r
}

// What parquet-go writes, whatever its settings, is read as it was written.
func TestRowsOfParquetGo(t *testing.T) {
	codecs := []parquet.WriterOption{
		parquet.Compression(&parquet.Uncompressed), parquet.Compression(&parquet.Snappy), parquet.Compression(&parquet.Gzip),
		parquet.Compression(&parquet.Zstd), parquet.Compression(&parquet.Lz4Raw), parquet.Compression(&parquet.Brotli),
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 80).Draw(t, "rows")
		rows := make([]row, n)
		for i := range rows {
			rows[i] = drawRow(t, i)
		}
		var file bytes.Buffer
		w := parquet.NewGenericWriter[row](&file, codecs[rapid.IntRange(0, len(codecs)-1).Draw(t, "codec")],
			parquet.PageBufferSize(rapid.IntRange(16, 4096).Draw(t, "page")),
			parquet.DataPageVersion(rapid.IntRange(1, 2).Draw(t, "version")),
			parquet.MaxRowsPerRowGroup(int64(rapid.IntRange(5, 100).Draw(t, "group"))))
		for at := 0; at < n; { // a page ends no earlier than what is written at once
			end := min(n, at+rapid.IntRange(1, 20).Draw(t, "write"))
			if _, err := w.Write(rows[at:end]); err != nil {
				t.Fatal(err)
			}
			at = end
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		src := stagetest.Bytes(file.Bytes())
		d, err := ours.Open(ctx, src, []string{anywhere}, ours.Options{Store: &index.Store{}})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if d.Index().Len() != int64(n) {
			t.Fatalf("%d samples of %d rows", d.Index().Len(), n)
		}
		var s format.Sample
		for i, r := range rows {
			if err := stagetest.Read(d, src, int64(i), nil, &s); err != nil {
				t.Fatal(err)
			}
			got := map[string]any{}
			for _, f := range s.Fields {
				typ, _ := d.Type(f.Name)
				got[f.Name] = show(typ, f.Data)
			}
			if want := r.fields(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("row %d is\n%v instead of\n%v", i, got, want)
			}
		}
	})
}

// fields is a row as show has it.
func (r row) fields() map[string]any {
	var list, more []float64
	for _, v := range r.List {
		list = append(list, float64(v))
	}
	for _, v := range r.More {
		more = append(more, float64(v))
	}
	out := map[string]any{
		"id": float64(r.ID), "small": float64(r.Small), "split": r.Split, "flag": map[bool]float64{true: 1}[r.Flag], "word": []byte(r.Word),
		"front": []byte(r.Front), "raw": r.Raw, "list": list, "more": more, "in.x": float64(r.In.X),
	}
	if r.Maybe != nil {
		out["maybe"], out["note"] = float64(*r.Maybe), []byte(*r.Note)
	}
	return out
}
