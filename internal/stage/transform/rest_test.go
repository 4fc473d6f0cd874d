package transform

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/kernel"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
	"github.com/stoker-data/stoker/testdata/photos"
)

// kernelSteps are the steps of rows of numbers, and the boxes of floats that are erased after
// them.
func kernelSteps(t fataler, rows []byte) (steps []kernel.Step, erased []kernel.Erased) {
	for ; len(rows) > 0; rows = rows[8*StepNumbers:] {
		var v [StepNumbers]float64
		for i := range v {
			v[i] = math.Float64frombits(binary.LittleEndian.Uint64(rows[8*i:]))
		}
		if v[0] == 0 {
			if slices.ContainsFunc(rows, func(b byte) bool { return b != 0 }) {
				t.Fatalf("there are numbers after the end")
			}
			return steps, erased
		}
		n := func(i int) int { return int(v[i]) }
		s := kernel.Step{Op: kernel.Op(n(0))}
		fill := func(i int) [3]uint8 { return [3]uint8{uint8(v[i]), uint8(v[i+1]), uint8(v[i+2])} }
		switch s.Op {
		case OpErased:
			e := kernel.Erased{X: n(1), Y: n(2), W: n(3), H: n(4)}
			for i := range 3 {
				e.Bias[i], e.Scale[i] = float32(v[5+i]), float32(v[10+i])
			}
			e.Noise, e.Key = v[8] == 1, uint64(v[9])
			erased = append(erased, e)
			continue
		case kernel.OpCrop:
			s.X, s.Y, s.W, s.H = n(1), n(2), n(3), n(4)
		case kernel.OpResize:
			s.W, s.H, s.Filter = n(1), n(2), kernel.Filter(n(3))
		case kernel.OpPad:
			s.X, s.Y, s.W, s.H, s.Mode, s.Fill = n(1), n(2), n(3), n(4), kernel.PadMode(n(5)), fill(6)
		case kernel.OpGray:
			s.C = n(1)
		case kernel.OpPermute:
			s.Perm = fill(1)
		case kernel.OpBlur:
			s.W, s.H, s.N = n(1), n(2), v[3]
		case kernel.OpErase:
			s.X, s.Y, s.W, s.H, s.Fill = n(1), n(2), n(3), n(4), fill(5)
		case kernel.OpAffine, kernel.OpPerspective:
			s.W, s.H, s.Filter, s.Filled, s.Fill = n(1), n(2), kernel.Filter(n(3)), v[4] == 1, fill(5)
			copy(s.Map[:], v[8:])
		default:
			s.N = v[1]
		}
		steps = append(steps, s)
	}
	return steps, erased
}

// TestLeaveAndTheRestAreTheWhole: every operation, with its example, and chains of several:
// the bytes of the first half, put through the steps that are left, are those of the whole.
func TestLeaveAndTheRestAreTheWhole(t *testing.T) {
	lane := NewLane()
	defer lane.Close()
	raw, err := photos.Files.ReadFile("coffee.jpg")
	if err != nil {
		t.Fatal(err)
	}
	var lefts []string
	for _, d := range catalog() {
		op := `{"op":"` + d.name + `"` + strings.Replace(strings.Replace(d.example, "{", ",", 1), ",}", "}", 1)
		switch {
		case d.name == "AugMix" || d.name == "Compose":
			continue
		case d.name == "Normalize":
			lefts = append(lefts, `"RandomInvert","ToTensor",`+op)
			continue
		case d.cost == converts:
			lefts = append(lefts, `"RandomInvert",`+op)
			continue
		}
		lefts = append(lefts, op+`,{"op":"Resize","size":[40,50]}`, op+`,{"op":"CenterCrop","size":[40,50]},"RandomHorizontalFlip"`)
	}
	lefts = append(lefts, []string{
		`{"op":"RandAugment","num_ops":4},{"op":"TrivialAugmentWide","interpolation":"bilinear"},"AutoAugment"`,
		`{"op":"RandomChoice","transforms":[{"op":"RandomCrop","size":[70,80]},{"op":"Resize","size":[70,80]}]}`,
		`{"op":"RandomOrder","transforms":["RandomHorizontalFlip",{"op":"ColorJitter","brightness":0.4},"RandomInvert"]}`,
		`{"op":"RandomCrop","size":[70,80],"padding":9,"padding_mode":"symmetric"},{"op":"RandomRotation","degrees":[180,180]}`,
		`"ToTensor",{"op":"RandomErasing","p":0.8,"value":[0.1,7,-3]},{"op":"Normalize","mean":0.5,"std":0.25},"RandomErasing"`,
		`"ToTensor",{"op":"RandomErasing","p":0.8,"value":"random"},{"op":"Normalize","mean":0.5,"std":0.25},{"op":"RandomErasing","value":"random"}`,
		`{"op":"ToDtype","dtype":"float16","scale":true},{"op":"RandomErasing","p":0.8,"value":[0.1,7,-3]},{"op":"Normalize","mean":0.5,"std":0.25}`,
		`"ToTensor",{"op":"RandomErasing","p":0.8,"value":0.3},{"op":"ToDtype","dtype":"bfloat16"},{"op":"RandomErasing","value":"random"},{"op":"Normalize","mean":0.5,"std":0.25}`,
		`"RandomPhotometricDistort","RandomPhotometricDistort"`,
	}...)
	front := []string{`{"op":"Resize","size":[90,120]}`, `{"op":"Resize","size":[90,120],"draft":true}`, `{"op":"RandomResizedCrop","size":[90,120]},"RandomVerticalFlip"`}
	photo, err := os.ReadFile("../../../testdata/photos/rocket.jpg") // of which a smaller one is decoded
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		head := rapid.SampledFrom(front).Draw(t, "front")
		left := rapid.SampledFrom(lefts).Draw(t, "left")
		codec := rapid.SampledFrom([]string{"rgb", "gray"}).Draw(t, "codec")
		if codec == "gray" && (strings.Contains(left, ":[0.1,7") || strings.Contains(left, "[200, 10, 100]")) {
			codec = "rgb"
		}
		layout := rapid.SampledFrom([]string{"nchw", "nhwc"}).Draw(t, "layout")
		first, err := Compile(codec, listed(t, "["+head+"]"), layout)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := Compile(codec, listed(t, "["+head+","+left+"]"), layout)
		if err != nil {
			t.Fatal(err)
		}
		host, floats, err := whole.Leave(first.Steps(), "device_transform")
		if err != nil {
			t.Fatalf("%s: %v", left, err)
		}
		raw := raw
		if strings.Contains(head, "draft") {
			raw = photo
		}
		key := rng.Key(rapid.Uint64().Draw(t, "key"))
		_, want := result(t, whole, lane, raw, key)
		shape, pixels := result(t, host, lane, raw, key)
		given, becomes, ok := host.Given()
		if !ok || !slices.Equal(given, shape) {
			t.Fatalf("%s: given %v of %v", left, given, shape)
		}
		rows := bytes.Repeat([]byte{7}, 8*StepNumbers*host.StepsLeft())
		if err := host.StepsOf(lane, key, rows); err != nil {
			t.Fatal(err)
		}
		steps, erased := kernelSteps(t, rows)
		out := kernel.Output{CHW: whole.chw, Erased: erased}
		size := 1
		switch {
		case floats == nil:
		case floats.Scale == nil:
			out.Halves, out.Half, size = new(kernel.Halves), FloatOf(floats.DType), 2
			for c := range becomes[2] {
				for x := range 256 {
					out.Halves[c][x] = out.Half.Bits(floats.done(uint8(x), c))
				}
			}
		default:
			out.Float, size = true, 4
			for i := range becomes[2] {
				out.Scale[i], out.Bias[i] = floats.Scale[i], floats.Bias[i]
			}
		}
		got := make([]byte, becomes.Elems()*size)
		job := kernel.Job{Src: kernel.Pixels{W: shape[1], H: shape[0], C: shape[2], Pix: pixels}, Steps: steps, Out: out, Dst: got}
		if err := lane.Kernel.Run(&job); err != nil {
			t.Fatalf("%s: %v", left, err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%s after %s: other bytes", left, head)
		}
	})
}

// TestLeaveRefuses what has no steps, or pictures that do not fit into one batch.
func TestLeaveRefuses(t *testing.T) {
	for _, c := range []struct{ front, left, said string }{
		{`{"op":"Resize","size":90}`, `{"op":"CenterCrop","size":50}`, "is given pictures of many sizes"},
		{`{"op":"Resize","size":[90,90]}`, `{"op":"RandomResize","min_size":40,"max_size":80}`, "gives pictures of many sizes"},
		{`{"op":"Resize","size":[90,90]}`, `"AugMix"`, "AugMix cannot be in device_transform"},
		{`{"op":"Resize","size":[90,90]}`, `"ToTensor",{"op":"Normalize","mean":0.5,"std":1e-42}`, "cannot be sent"},
		{`{"op":"Resize","size":[90,90]}`, `"ToTensor",{"op":"RandomApply","transforms":[{"op":"Normalize","mean":0.5,"std":0.5}]}`, "depends on the sample"},
	} {
		first := mustCompile(t, "rgb", opsOf(t, "["+c.front+"]"), "")
		whole := mustCompile(t, "rgb", opsOf(t, "["+c.front+","+c.left+"]"), "")
		if _, _, err := whole.Leave(first.Steps(), "device_transform"); err == nil || !strings.Contains(err.Error(), c.said) {
			t.Errorf("%s, %s: %v", c.front, c.left, err)
		}
	}
	if _, _, err := mustCompile(t, "text", nil, "").Leave(0, "device_transform"); err == nil {
		t.Error("a text has steps left")
	}
}

// TestLeaveOfStoredPictures: their size is known, also where operations keep it.
func TestLeaveOfStoredPictures(t *testing.T) {
	lane := NewLane()
	defer lane.Close()
	pixels := make([]byte, 6*8*3)
	for i := range pixels {
		pixels[i] = byte(7 * i)
	}
	for _, c := range []struct {
		front, left string
		steps       bool
	}{
		{`[]`, `["RandomInvert"]`, true},
		{`["RandomHorizontalFlip"]`, `["RandomEqualize",{"op":"CenterCrop","size":4}]`, true},
		{`["RandomHorizontalFlip"]`, `["ToTensor"]`, false},
		{`["RandomHorizontalFlip"]`, `["Identity"]`, false},
	} {
		first, err := CompilePixels(mem.Shape{6, 8, 3}, opsOf(t, c.front), "")
		if err != nil {
			t.Fatal(err)
		}
		whole, err := CompilePixels(mem.Shape{6, 8, 3}, append(opsOf(t, c.front), opsOf(t, c.left)...), "")
		if err != nil {
			t.Fatal(err)
		}
		host, left, err := whole.Leave(first.Steps(), "device_transform")
		if err != nil {
			t.Errorf("%s, %s: %v", c.front, c.left, err)
			continue
		}
		shape, _ := result(t, host, lane, pixels, 3)
		if fixed, ok := host.Shape(); !ok || !slices.Equal(shape, mem.Shape{6, 8, 3}) || !slices.Equal(fixed, shape) {
			t.Errorf("%s, %s: shape %v", c.front, c.left, shape)
		}
		if host.StepsLeft() > 0 != c.steps || (left != nil) != (c.left == `["ToTensor"]`) {
			t.Errorf("%s, %s: %d steps and %v are left", c.front, c.left, host.StepsLeft(), left)
		}
		if !c.steps && host.Digest() != whole.Digest() {
			t.Errorf("%s, %s: another digest, and no steps are left", c.front, c.left)
		}
	}
}

// TestLeavingChangesNoDigest: a step may be moved in the middle of a run, because it gives the
// same bytes. A step with draft gives others on the device.
func TestLeavingChangesNoDigest(t *testing.T) {
	for ops, same := range map[string]bool{
		`[{"op":"Resize","size":[90,90]},"RandomInvert","RandomEqualize"]`:                                       true,
		`[{"op":"Resize","size":[90,90],"draft":true},"RandomInvert","RandomEqualize"]`:                          true,
		`[{"op":"Resize","size":[90,90]},"RandomInvert",{"op":"Resize","size":[80,80],"draft":true}]`:            false,
		`[{"op":"Resize","size":[90,90]},"RandomInvert",{"op":"RandomResizedCrop","size":[90,90],"draft":true}]`: false,
	} {
		whole := mustCompile(t, "rgb", opsOf(t, ops), "")
		for n := 1; n <= 2; n++ {
			host, _, err := whole.Leave(n, "device_transform")
			if err != nil {
				t.Fatal(err)
			}
			if host.StepsLeft() == 0 || (host.Digest() == whole.Digest()) != same {
				t.Errorf("%s, %d steps before: the digests are the same: %v", ops, n, !same)
			}
		}
	}
}

// TestExplainTellsOfTheRest as of the whole.
func TestExplainTellsOfTheRest(t *testing.T) {
	lane := NewLane()
	defer lane.Close()
	encoded := readSource(t, "wide.png")
	whole := mustCompile(t, "rgb", opsOf(t, `[{"op":"RandomResizedCrop","size":[30,30]},"RandomInvert",{"op":"RandomCrop","size":20}]`), "")
	host, _, err := whole.Leave(1, "device_transform")
	if err != nil {
		t.Fatal(err)
	}
	want, err := whole.Explain(lane, encoded, 9)
	if err != nil {
		t.Fatal(err)
	}
	got, err := host.Explain(lane, encoded, 9)
	if err != nil || len(got) != 3 || len(want) != 3 {
		t.Fatalf("%v: %v of %v", err, got, want)
	}
	for i := range want {
		a, _ := want[i].MarshalJSON()
		b, _ := got[i].MarshalJSON()
		if i > 0 {
			a = append(a[:len(a)-1], `,"device":true}`...)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s, not %s", b, a)
		}
	}
}
