package s3_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
	"github.com/stoker-data/stoker/internal/stage/source/s3"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/stagetest/formats"
)

// labelled is a shard of one sample.
func labelled(t *testing.T, label int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, text := tar.NewWriter(&b), fmt.Append(nil, label)
	stagetest.Must(t, w.WriteHeader(&tar.Header{Name: "1.cls", Mode: 0o644, Size: int64(len(text))}))
	_, err := w.Write(text)
	stagetest.Must(t, err)
	stagetest.Must(t, w.Close())
	return b.Bytes()
}

// delivered is the column of labels that a loader delivers, in order.
func delivered(t *testing.T, d spec.Dataset, f spec.Field) (all []int64, err error) {
	t.Helper()
	shared := loader.NewShared(batch.Heap{}, stats.NewBoard(nil, 32))
	defer shared.Close()
	l, err := loader.Open(t.Context(), shared, spec.Spec{
		Dataset: d, Fields: []spec.Field{f}, Batch: spec.Batch{Size: 64}, Workers: 1, Order: spec.Order{Shuffle: "none"},
	}, loader.Options{Sources: []source.Scheme{source.Local(), s3.Scheme(remote.NewNet(remote.Options{}))}})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	p, err := l.Pass(0, 0, 0)
	if err != nil {
		return nil, err
	}
	for {
		b, err := p.Next(context.Background(), 0)
		if errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			p.Cancel()
			return nil, err
		}
		for i, rows := 0, b.Slot.Mem[b.Columns[0].Off:]; i < b.Rows; i++ {
			all = append(all, int64(binary.LittleEndian.Uint64(rows[8*i:])))
		}
		b.Release()
	}
}

// Keys that a path cannot be are objects of their own, from the pattern to the batch: what
// cleaned one would read another.
func TestDatasetsOfKeysThatAreNoPaths(t *testing.T) {
	keys := []string{"a/x.tar", "a//x.tar", "a///x.tar", "a//y.tar", "a/./x.tar", "a/../x.tar", "x.tar", "/x.tar", "n/z.tar", "only//w.tar", "z.tar"}
	objects := map[string][]byte{}
	for i, key := range keys {
		objects[key] = labelled(t, 100+i)
	}
	objects["list.txt"] = []byte("a//x.tar\ns3://b/a//y.tar\ns3://b/a//{x,y}.tar\n")
	objects["m//t.csv"] = []byte("path,label\n1.jpg,1\n./u/../1.jpg,2\ns3://b/m//u//1.jpg,3\nu//1.jpg,4\n")
	for _, key := range []string{"m/1.jpg", "m//1.jpg", "m//u/1.jpg", "m//u//1.jpg", "f/c/1.jpg", "f/c//1.jpg", "f/c//d//1.jpg", "f/c/d/1.jpg", "f/c/d//1.jpg", "f/e/1.jpg", "f//c/1.jpg", "m/u/1.jpg"} {
		objects[key] = []byte(key)
	}
	newFake(t, objects)
	label := spec.Field{Name: "y", From: "cls", Decode: "int"}
	for path, want := range map[string][]int64{
		"a/x.tar":                    {100},
		"a//x.tar":                   {101},
		"a///x.tar":                  {102},
		"a/./x.tar":                  {104},
		"a/../x.tar":                 {105},
		"/x.tar":                     {107},
		"only//w.tar":                {109},
		"a//{y,x}.tar":               {103, 101},
		"{a//x,a/x,/x,x}.tar":        {101, 100, 107, 106},
		"a//*.tar":                   {101, 103},
		"/*.tar":                     {107},
		"*.tar":                      {106, 110},
		"a/*.tar":                    {100},
		"*//x.tar":                   {101},
		"*/x.tar":                    {100},
		"on*/**/*.tar":               {109},
		"a/**/x.tar":                 {102, 101, 100}, // what begins with a dot is hidden
		"a/**":                       {102, 101, 103, 100},
		"{a//x,a//y,only//w,/x}.tar": {101, 103, 109, 107},
		"@list.txt":                  {100, 103, 101, 103}, // what is relative is a path
	} {
		path := "s3://b/" + path
		if list, is := strings.CutPrefix(path, "s3://b/@"); is {
			path = "@s3://b/" + list
		}
		for _, when := range []string{"indexed", "again"} {
			if got, err := delivered(t, spec.Dataset{Path: spec.Paths{path}}, label); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s, %s: %v, want %v (%v)", path, when, got, want, err)
			}
		}
	}
	for path, hint := range map[string]string{
		"s3://b/n//z.tar": `"s3://b/n/z.tar"`, "s3://b/only/w.tar": "", "s3://b/n//*.tar": "", "s3://b//z*.tar": "", "s3://b/n/../n/z.tar": "",
	} {
		if got, err := delivered(t, spec.Dataset{Path: spec.Paths{path}}, label); errs.CodeOf(err) != errs.NotFound || !strings.Contains(errs.From(err).Hint, hint) {
			t.Errorf("%s: %v, %v (%s)", path, got, err, errs.From(err).Hint)
		}
	}
	for _, c := range []struct {
		d    spec.Dataset
		want []string
	}{
		{spec.Dataset{Path: spec.Paths{"s3://b/f"}, Format: "folder"}, []string{"f/c/1.jpg", "f/c//1.jpg", "f/c//d//1.jpg", "f/c/d/1.jpg", "f/c/d//1.jpg", "f/e/1.jpg"}},
		{spec.Dataset{Path: spec.Paths{"s3://b/f/**/1.jpg"}}, []string{"f//c/1.jpg", "f/c//1.jpg", "f/c//d//1.jpg", "f/c/1.jpg", "f/c/d//1.jpg", "f/c/d/1.jpg", "f/e/1.jpg"}},
		{spec.Dataset{Manifest: "s3://b/m//t.csv"}, []string{"m//1.jpg", "m//u//1.jpg", "m//u/1.jpg"}},
		{spec.Dataset{Manifest: "s3://b/m//t.csv", Root: "s3://b/m/"}, []string{"m/1.jpg", "m//u//1.jpg", "m/u/1.jpg"}},
	} {
		x := formats.Open(t, c.d, []source.Scheme{source.Local(), s3.Scheme(remote.NewNet(remote.Options{}))}).Dataset().Index()
		var got []string
		for i := range x.Files() {
			got = append(got, strings.TrimPrefix(string(x.AppendPath(i, nil)), "s3://b/"))
			if size, _ := x.Stamp(i); size != int64(len(objects[got[i]])) {
				t.Errorf("%s has %d bytes", got[i], size)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.d, got, c.want)
		}
	}
}
