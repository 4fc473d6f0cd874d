package pack_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/internal/base/stats"
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/batch"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/transform"
	"github.com/stoker-data/stoker/internal/stagetest"
	"github.com/stoker-data/stoker/internal/tool/pack"
	"github.com/stoker-data/stoker/internal/tool/pack/prepare"
	"github.com/stoker-data/stoker/testdata/photos"
)

// album is a folder of five photographs in two classes, cut out so that they are
// small, and one PNG.
func album(t testing.TB) string {
	root := t.TempDir()
	for i, name := range []string{"chelsea", "coffee", "rocket", "astronaut", "retina"} {
		raw, err := photos.Files.ReadFile(name + ".jpg")
		stagetest.Must(t, err)
		px, w, h := pixels(t, raw, 0, ops(fmt.Sprintf(`[{"op": "CenterCrop", "size": [%d, %d]}]`, 120+16*i, 200)))
		subsampling := "4:4:4"
		if !kernel.HasLibjpeg {
			subsampling = "4:2:0"
		}
		small, err := kernel.EncodeJPEG(kernel.Pixels{Pix: px, W: w, H: h, C: 3}, 92, subsampling, 0)
		stagetest.Must(t, err)
		put(t, fmt.Sprintf("%s/c%d/%s.jpg", root, i%2, name), small)
	}
	m := image.NewRGBA(image.Rect(0, 0, 70, 50))
	for i := range m.Pix {
		m.Pix[i] = byte(i*7) | 3
	}
	m.Set(3, 3, color.White)
	var b bytes.Buffer
	stagetest.Must(t, png.Encode(&b, m))
	put(t, root+"/c1/zebra.png", b.Bytes())
	return root
}

func ops(text string) (o []transform.Op) {
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	return o
}

// pixels is what transforms make of a picture.
func pixels(t testing.TB, raw []byte, key rng.Key, o []transform.Op) (px []byte, w, h int) {
	t.Helper()
	p, err := transform.Compile("rgb", o, "")
	stagetest.Must(t, err)
	l := transform.NewLane()
	defer l.Close()
	shape, err := p.Begin(l, raw, key)
	stagetest.Must(t, err)
	h, w = shape[0], shape[1]
	px = make([]byte, shape.Elems())
	stagetest.Must(t, p.Finish(l, px))
	return px, w, h
}

// stored is all samples of a dataset as our own readers read them.
func stored(t testing.TB, paths ...string) (all []map[string]string) {
	t.Helper()
	shared := loader.NewShared(batch.Heap{}, stats.NewBoard(nil, 64))
	defer shared.Close()
	l, err := loader.Open(context.Background(), shared, spec.Spec{Dataset: spec.Dataset{Path: paths}, Workers: 1}, loader.Options{})
	stagetest.Must(t, err)
	defer l.Close()
	r := format.NewReader(l.Dataset(), source.NewFile())
	var s format.Sample
	for id := range l.Len() {
		stagetest.Must(t, r.Read(context.Background(), id, nil, &s))
		m := map[string]string{}
		for _, f := range s.Fields {
			name := strings.Clone(f.Name) // a view of the index, as a rule
			if m[name] = string(f.Data); f.IsInt {
				m[name] = fmt.Sprint(f.Int)
			}
		}
		all = append(all, m)
	}
	return all
}

// What is packed is read by our own readers as it was, whatever it was packed
// into, and packed again from there.
func TestRoundTrip(t *testing.T) {
	src := album(t)
	want := stored(t, src)
	tars, records, again := t.TempDir(), t.TempDir(), t.TempDir()
	run(t, config(src, tars, pack.Options{ShardSize: 30_000}))
	run(t, config(src, records, pack.Options{ShardSize: 30_000, Output: pack.OutputTFRecord, Compress: "gzip"}))
	run(t, config(records, again, pack.Options{ShardSize: 30_000}))
	inTar, inRecords, inAgain := stored(t, tars), stored(t, records), stored(t, again)
	for i, w := range want {
		ext := strings.TrimPrefix(filepath.Ext(w["__key__"]), ".")
		if inTar[i][ext] != w["image"] || inTar[i]["cls"] != w["label"] {
			t.Errorf("sample %d came out of tar as another", i)
		}
		label := binary.LittleEndian.AppendUint64(nil, uint64(w["label"][0]-'0'))
		if got := inRecords[i]; got["image"] != w["image"] || got["label"] != string(label) && got["label"] != w["label"] {
			t.Errorf("sample %d came out of TFRecord as another: %d bytes, %q", i, len(got["image"]), got["label"])
		}
		delete(inTar[i], "__url__")
		delete(inAgain[i], "__url__")
		if !maps.Equal(inTar[i], inAgain[i]) {
			t.Errorf("sample %d: %v, through TFRecord %v", i, slices.Sorted(maps.Keys(inTar[i])), slices.Sorted(maps.Keys(inAgain[i])))
		}
	}
	if len(inTar) != len(want) || len(inRecords) != len(want) || len(inAgain) != len(want) {
		t.Errorf("%d, %d and %d samples of %d", len(inTar), len(inRecords), len(inAgain), len(want))
	}
}

// Decoded pictures are those that the loader decodes.
func TestDecoded(t *testing.T) {
	src := album(t)
	want := stored(t, src)
	o := pack.Options{ShardSize: 20_000, Output: pack.OutputNpy, Options: prepare.Options{Decode: true, Resize: 48, Crop: 40}}
	arrays, again, tars := t.TempDir(), t.TempDir(), t.TempDir()
	run(t, config(src, arrays, o))
	got := stored(t, arrays)
	if len(got) != len(want) {
		t.Fatalf("%d samples of %d", len(got), len(want))
	}
	for i, w := range want {
		px, _, _ := pixels(t, []byte(w["image"]), 0, ops(`[{"op": "Resize", "size": 48}, {"op": "CenterCrop", "size": 40}]`))
		if got[i]["image"] != string(px) || got[i]["label"] != string(binary.LittleEndian.AppendUint64(nil, uint64(w["label"][0]-'0'))) {
			t.Errorf("sample %d is another", i)
		}
	}
	run(t, config(arrays, again, pack.Options{ShardSize: 20_000, Output: pack.OutputNpy}))
	for i, m := range stored(t, again) {
		if !maps.Equal(m, got[i]) {
			t.Errorf("sample %d is another when it is packed again", i)
		}
	}
	run(t, config(arrays, tars, pack.Options{}))
	all, _ := members(t, tars, "")
	if len(all) != 2*len(want) || all[0].name != "000000000.image.npy" || !strings.HasSuffix(all[0].body, got[0]["image"]) || all[1] != (member{"000000000.cls", "0"}) {
		t.Errorf("%d members, %q", len(all), all[0].name)
	}
}

// Rewritten JPEGs have the same pixels; files that are not JPEGs stay unchanged.
func TestIndexedJPEG(t *testing.T) {
	if kernel.Target() == "go" {
		t.Skip("the kernel without C does not rewrite JPEGs")
	}
	src, dst := album(t), t.TempDir()
	run(t, config(src, dst, pack.Options{Options: prepare.Options{JPEG: "index"}}))
	marked := 0
	for i, w := range stored(t, src) {
		got := stored(t, dst)[i]
		if got["png"] != "" {
			if got["png"] != w["image"] {
				t.Error("the PNG has changed")
			}
			continue
		}
		a, _, _ := pixels(t, []byte(w["image"]), 0, nil)
		b, _, _ := pixels(t, []byte(got["jpg"]), 0, nil)
		if h, err := kernel.ReadHeader([]byte(got["jpg"])); err == nil && h.Restart > 0 {
			marked++
		}
		if !bytes.Equal(a, b) || len(got["jpg"]) > len(w["image"])*102/100+1 {
			t.Errorf("sample %d: other pixels, or %d bytes of %d", i, len(got["jpg"]), len(w["image"]))
		}
	}
	if marked == 0 {
		t.Error("no picture has restart markers")
	}
}

func TestProgressive(t *testing.T) {
	if kernel.Target() == "go" {
		t.Skip("the kernel without C does not rewrite JPEGs")
	}
	src := t.TempDir()
	raw, err := os.ReadFile("../../base/kernel/testdata/progressive411.jpg")
	stagetest.Must(t, err)
	put(t, src+"/a/x.jpg", raw)
	c := config(src, t.TempDir(), pack.Options{Options: prepare.Options{JPEG: "index"}})
	_, err = pack.Run(context.Background(), c)
	if e := errs.From(err); err == nil || e.Code != errs.Unsupported || !strings.Contains(e.Hint, "--progressive convert") || e.Where.File != src+"/a/x.jpg" {
		t.Errorf("%v", err)
	}
	for how, converted := range map[string]int64{"convert": 1, "keep": 0} {
		c := config(src, t.TempDir(), pack.Options{Options: prepare.Options{JPEG: "index", Progressive: how}})
		if how == "convert" && !kernel.HasLibjpeg {
			_, err = pack.Run(context.Background(), c)
			if e := errs.From(err); err == nil || e.Code != errs.Unsupported || !strings.Contains(err.Error(), "libjpeg-turbo") {
				t.Errorf("%s: %v", how, err)
			}
			continue
		}
		r := run(t, c)
		got := stored(t, c.Dst)[0]["jpg"]
		h, err := kernel.ReadHeader([]byte(got))
		stagetest.Must(t, err)
		a, _, _ := pixels(t, raw, 0, nil)
		b, _, _ := pixels(t, []byte(got), 0, nil)
		if r.Manifest.Converted() != converted || h.Progressive != (converted == 0) || !bytes.Equal(a, b) {
			t.Errorf("%s: %d converted, %+v", how, r.Manifest.Converted(), h)
		}
	}
}

// Arithmetic coding cannot be rewritten; "keep" keeps it, as it does progressive
// pictures.
func TestArithmetic(t *testing.T) {
	if kernel.Target() == "go" {
		t.Skip("the kernel without C does not rewrite JPEGs")
	}
	src := t.TempDir()
	raw, err := os.ReadFile("../../base/kernel/testdata/arithmetic.jpg")
	stagetest.Must(t, err)
	put(t, src+"/a/x.jpg", raw)
	for _, how := range []string{"", "convert"} {
		c := config(src, t.TempDir(), pack.Options{Options: prepare.Options{JPEG: "index", Progressive: how}})
		_, err = pack.Run(context.Background(), c)
		if e := errs.From(err); err == nil || e.Code != errs.Unsupported || !strings.Contains(e.Hint, "--progressive keep") {
			t.Errorf("%q: %v", how, err)
		}
	}
	c := config(src, t.TempDir(), pack.Options{Options: prepare.Options{JPEG: "index", Progressive: "keep"}})
	run(t, c)
	if got := stored(t, c.Dst)[0]["jpg"]; got != string(raw) {
		t.Errorf("%d bytes were kept as %d", len(raw), len(got))
	}
}

// Pictures are made smaller by their shortest side; those that are small stay.
func TestResized(t *testing.T) {
	src, dst := album(t), t.TempDir()
	run(t, config(src, dst, pack.Options{Options: prepare.Options{Resize: 130, Quality: 80}}))
	kept := 0
	got := stored(t, dst)
	for i, w := range stored(t, src) {
		_, pw, ph := pixels(t, []byte(w["image"]), 0, nil)
		if min(pw, ph) <= 130 {
			if got[i]["jpg"] != w["image"] && got[i]["png"] != w["image"] {
				t.Errorf("sample %d is small enough, and has changed", i)
			}
			kept++
			continue
		}
		px, pw, ph := pixels(t, []byte(w["image"]), 0, ops(`[{"op": "Resize", "size": 130}]`))
		want, err := kernel.EncodeJPEG(kernel.Pixels{Pix: px, W: pw, H: ph, C: 3}, 80, "4:2:0", 0)
		stagetest.Must(t, err)
		if got[i]["jpg"] != string(want) || min(pw, ph) != 130 {
			t.Errorf("sample %d of %d x %d is another", i, pw, ph)
		}
	}
	if kept < 2 || kept > 4 {
		t.Errorf("%d of 6 pictures were kept", kept)
	}
}

// Copies are varied by seed, copy and sample, and by nothing else.
func TestAugmented(t *testing.T) {
	src := album(t)
	want := stored(t, src)
	o := pack.Options{Seed: 9, Shuffle: true, Options: prepare.Options{Augment: 3, Decode: true, Transform: ops(`[{"op": "RandomResizedCrop", "size": 32}, "RandomHorizontalFlip"]`)}}
	dst := t.TempDir()
	run(t, config(src, dst, o))
	all, _ := members(t, dst, "")
	if len(all) != 3*2*len(want) {
		t.Fatalf("%d members", len(all))
	}
	bodies := map[string]string{}
	for _, m := range all {
		bodies[m.name] = m.body
	}
	for id, w := range want {
		key := strings.TrimSuffix(w["__key__"], filepath.Ext(w["__key__"]))
		for n := range int64(3) {
			px, _, _ := pixels(t, []byte(w["image"]), rng.Sample(9, n, int64(id)), o.Transform)
			if !strings.HasSuffix(bodies[fmt.Sprintf("%s-%d.image.npy", key, n)], string(px)) || bodies[fmt.Sprintf("%s-%d.cls", key, n)] != w["label"] {
				t.Errorf("copy %d of %s is another", n, key)
			}
		}
	}
}

// What a camera says of how to turn a picture stays with its pixels.
func TestOrientationStays(t *testing.T) {
	raw := pillow(t)
	for name, exif := range map[string]string{
		"big":    "MM\x00*\x00\x00\x00\x08\x00\x02\x01\x00\x00\x03\x00\x00\x00\x01\x00\x07\x00\x00\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00\x00\x00\x00\x00",
		"little": "II*\x00\x08\x00\x00\x00\x01\x00\x12\x01\x03\x00\x01\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00",
		"none":   "", "cut": "II*\x00\x08\x00\x00\x00\x09\x00\x12\x01",
	} {
		src, dst := t.TempDir(), t.TempDir()
		jpeg := raw
		if exif != "" {
			body := "Exif\x00\x00" + exif
			jpeg = append(append([]byte("\xff\xd8\xff\xe1"), byte((len(body)+2)>>8), byte(len(body)+2)), body...)
			jpeg = append(jpeg, raw[2:]...)
		}
		put(t, src+"/a/x.jpg", jpeg)
		run(t, config(src, dst, pack.Options{Options: prepare.Options{Resize: 16}}))
		all, _ := members(t, dst, "")
		got := strings.Contains(all[0].body, "Exif\x00\x00MM\x00\x2a\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06")
		if want := name == "big" || name == "little"; got != want {
			t.Errorf("%s: the tag is there: %v", name, got)
		}
		if _, w, h := pixels(t, []byte(all[0].body), rng.Key(0), nil); min(w, h) != 16 {
			t.Errorf("%s: %d x %d", name, w, h)
		}
	}
}

// A picture of no bytes is not a picture.
func TestEmptyPicture(t *testing.T) {
	src := t.TempDir()
	put(t, src+"/a/x.jpg", pillow(t))
	put(t, src+"/a/y.jpg", nil)
	_, err := pack.Run(context.Background(), config(src, t.TempDir(), pack.Options{}))
	if e := errs.From(err); err == nil || e.Code != errs.Damaged || !strings.Contains(e.What, "empty") || e.Where.File != src+"/a/y.jpg" {
		t.Errorf("%v", err)
	}
}

// pillow is a JPEG of a photograph.
func pillow(t testing.TB) []byte {
	t.Helper()
	paths, err := filepath.Glob(album(t) + "/*/*.jpg")
	stagetest.Must(t, err)
	b, err := os.ReadFile(paths[0])
	stagetest.Must(t, err)
	return b
}
