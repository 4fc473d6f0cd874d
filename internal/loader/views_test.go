package loader

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// viewsSpec is photographs in three views of two sizes.
func viewsSpec(t *testing.T, root string) Spec {
	s := imageSpec(root)
	s.Fields[0].Transform = ops(t, `[{"op":"Views","transforms":[
		[{"op":"RandomResizedCrop","size":[40,32]},"RandomHorizontalFlip"],
		[{"op":"RandomResizedCrop","size":[40,32]},"RandomHorizontalFlip",{"op":"RandomGrayscale","p":0.5}],
		[{"op":"RandomResizedCrop","size":16,"scale":[0.05,0.3]},"ToTensor"]]}]`)
	return s
}

// writtenOut is the same with a field for each view.
func writtenOut(t *testing.T, root string) Spec {
	s := imageSpec(root)
	s.Fields = []Field{
		{Name: "image_0", From: "image", Decode: "rgb", Transform: ops(t, `[{"op":"RandomResizedCrop","size":[40,32]},"RandomHorizontalFlip"]`)},
		{Name: "image_1", From: "image", Decode: "rgb", Transform: ops(t, `[{"op":"RandomResizedCrop","size":[40,32]},"RandomHorizontalFlip",{"op":"RandomGrayscale","p":0.5}]`)},
		{Name: "image_2", From: "image", Decode: "rgb", Transform: ops(t, `[{"op":"RandomResizedCrop","size":16,"scale":[0.05,0.3]},"ToTensor"]`)},
		{Name: "label", Decode: "int"},
	}
	return s
}

// columnsOf is an epoch of a loader, column by column, by name.
func columnsOf(t *testing.T, l *Loader) map[string][]byte {
	t.Helper()
	p, err := l.Pass(0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Cancel()
	out := map[string][]byte{}
	for {
		b, err := p.Next(context.Background(), 30*time.Second)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range l.layout.Fields {
			for r := range b.Rows {
				out[f.Name] = append(out[f.Name], l.layout.Row(b.Slot.Mem, i, r)...)
			}
		}
		b.Release()
	}
}

// Views are fields of one stored value: the columns are those of fields written out, and
// of a loader that has each view alone. The picture is read once.
func TestViewsAreFields(t *testing.T) {
	const n = 12
	root := photos(t, n)
	var reads atomic.Int64
	l := open(t, ground(t), viewsSpec(t, root), counted(&reads))
	out := open(t, ground(t), writtenOut(t, root))
	got := columnsOf(t, l)
	if k := reads.Load(); k > 2*n { // of the next epoch, some
		t.Errorf("%d reads of %d pictures", k, n)
	}
	if diff := cmp.Diff(columnsOf(t, out), got); diff != "" {
		t.Error("other bytes than those of fields written out")
	}
	if l.Pipeline() != out.Pipeline() {
		t.Error("a state of one cannot be resumed in the other")
	}
	alone := viewsSpec(t, root)
	alone.Fields[0].Transform = writtenOut(t, root).Fields[0].Transform
	if !bytes.Equal(columnsOf(t, open(t, ground(t), alone))["image"], got["image_0"]) {
		t.Error("view 0 is not what the field would be without views")
	}
	for i, f := range l.Fields() {
		want := [...]string{"image", "image", "image", "", ""}[i]
		if f.ViewOf != want {
			t.Errorf("column %s is a view of %q, not %q", f.Name, f.ViewOf, want)
		}
	}
	if bytes.Equal(got["image_0"], got["image_1"]) || len(got["image_2"]) != n*16*16*3*4 {
		t.Error("views are equal, or have a wrong size")
	}
}

// Views do not depend on lanes or a cache. The cache keeps one picture for views that
// begin alike.
func TestViewsAreKeyed(t *testing.T) {
	const n = 12
	root := photos(t, n)
	spec := viewsSpec(t, root)
	want := columnsOf(t, open(t, ground(t), spec))
	for _, lanes := range []int{1, 3} {
		spec := spec
		spec.Workers = lanes
		if !cmp.Equal(columnsOf(t, open(t, ground(t), spec)), want) {
			t.Errorf("%d lanes: other bytes", lanes)
		}
	}
	sizes := map[string]int64{}
	for name, s := range map[string]Spec{"views": spec, "alone": photoSpec(t, root)} {
		s.Cache = Cache{Memory: 64 << 20}
		l := open(t, ground(t), s)
		for range 2 {
			if got := columnsOf(t, l); name == "views" && !cmp.Equal(got, want) {
				t.Error("with a cache: other bytes")
			}
		}
		sizes[name] = l.Stats().Cache.Bytes
	}
	if sizes["views"] != sizes["alone"] {
		t.Errorf("the cache keeps %d bytes for three views, and %d for one picture", sizes["views"], sizes["alone"])
	}
	kept := viewsSpec(t, root)
	kept.Fields[0].Transform = ops(t, `[{"op":"Views","transforms":[[{"op":"Resize","size":[50,40]},"RandomHorizontalFlip"],[{"op":"Resize","size":[30,40]},{"op":"RandomCrop","size":20}]]}]`)
	plain := columnsOf(t, open(t, ground(t), kept))
	kept.Cache = Cache{Memory: 64 << 20}
	l := open(t, ground(t), kept)
	for range 2 {
		if !cmp.Equal(columnsOf(t, l), plain) {
			t.Error("views that are kept after different steps: other bytes")
		}
	}
}

// TestKeysOfViewsNeverChange: the choices of every view of one sample. Users' runs depend
// on them: they may never change.
func TestKeysOfViewsNeverChange(t *testing.T) {
	e, err := open(t, ground(t), viewsSpec(t, photos(t, 6))).Explain(3, 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(e.Rows[0].Choices)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"image_0":[{"op":"RandomResizedCrop","top":18,"left":5,"height":96,"width":80,"to_height":40,"to_width":32,"stored_top":18,"stored_left":5,"stored_height":96,"stored_width":80},{"op":"RandomHorizontalFlip","flipped":false}],` +
		`"image_1":[{"op":"RandomResizedCrop","top":41,"left":19,"height":84,"width":86,"to_height":40,"to_width":32,"stored_top":41,"stored_left":19,"stored_height":84,"stored_width":86},{"op":"RandomHorizontalFlip","flipped":true},{"op":"RandomGrayscale","gray":false}],` +
		`"image_2":[{"op":"RandomResizedCrop","top":38,"left":76,"height":103,"width":78,"to_height":16,"to_width":16,"stored_top":38,"stored_left":76,"stored_height":103,"stored_width":78}]}`
	if string(got) != want {
		t.Errorf("sample %d:\n%s\nwanted\n%s", e.Rows[0].Sample, got, want)
	}
}

// A JPEG that is decoded once for all its views is counted once.
func TestViewsAreDecodedOnce(t *testing.T) {
	const n = 12
	l := open(t, ground(t), viewsSpec(t, photos(t, n)))
	columnsOf(t, l)
	l.Close()
	waitQuiet(t, l)
	if jpeg := l.Stats().JPEG; jpeg.Own < n || jpeg.Own > 2*n { // of the next epoch, some
		t.Errorf("%d pictures were decoded %d times", n, jpeg.Own)
	}
}

// Every mistake in views is told in words.
func TestViewsThatCanNotBe(t *testing.T) {
	root := photos(t, 2)
	for text, says := range map[string]string{
		`[{"op":"Views"}]`:                                                                          "transforms is missing",
		`[{"op":"Views","transforms":[]}]`:                                                          "0 views",
		`[{"op":"Views","transforms":7}]`:                                                           "not 7",
		`[{"op":"Views","transform":[[]]}]`:                                                         `did you mean "transforms"`,
		`[{"op":"Views","transforms":[["NoSuch"]]}]`:                                                "NoSuch",
		`[{"op":"Views","transforms":[[{"op":"Views","transforms":[[]]}]]}]`:                        "Views",
		`[{"op":"Views","transforms":[["ToTensor"]]},"RandomHorizontalFlip"]`:                       "must be the last",
		`[{"op":"RandomApply","transforms":[{"op":"Views","transforms":[["Grayscale"]]}]}]`:         "must be the last",
		`[{"op":"Compose","transforms":["RandomHorizontalFlip"]},{"op":"Views","transforms":[[]]}]`: "RandomHorizontalFlip comes before the views",
		`[{"op":"Views","transforms":[[],[{}]]}]`:                                                   `no "op"`,
	} {
		s := imageSpec(root)
		s.Fields[0].Transform = ops(t, text)
		e := refused(t, ground(t), s)
		if e.Code != errs.Config || !strings.Contains(e.Error()+e.Hint, says) || !strings.Contains(e.Error(), `"image`) {
			t.Errorf("%s: %s (%s)", text, e.Error(), e.Hint)
		}
	}
	s := viewsSpec(t, root)
	s.Fields[1].Name, s.Fields[1].From = "image_1", "label"
	if e := refused(t, ground(t), s); !strings.Contains(e.Error(), `called "image_1"`) {
		t.Error(e)
	}
}
