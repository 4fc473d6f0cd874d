package transform

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// done is what the client does with the bytes of a channel.
func (l *Left) done(x uint8, c int) float32 {
	v := float32(x)
	if l.Scale != nil {
		return float32(v*l.Scale[c]) + l.Bias[c]
	}
	at := mem.Float32
	for _, s := range l.Steps {
		if s.Mean != nil {
			v = rounded(v-rounded(s.Mean[c], at), at)
			v = rounded(v/rounded(s.Std[c], at), at)
			continue
		}
		at = s.To
		if v = rounded(v, at); s.Scale {
			v = rounded(v*(1.0/255), at)
		}
	}
	return v
}

// TestBareAndLeftAreTheWhole: the bytes of a bare program, and what it leaves, give the
// numbers of the whole program, to the bit, and its digest is the whole one's.
func TestBareAndLeftAreTheWhole(t *testing.T) {
	lane := NewLane()
	defer lane.Close()
	encoded := readSource(t, "wide.png")
	front := []string{
		`[{"op":"RandomResizedCrop","size":[20,24]},"RandomHorizontalFlip",`,
		`[{"op":"Resize","size":[20,24]},`,
	}
	ends := []string{
		`"ToTensor"`,
		`"ToTensor",{"op":"Normalize","mean":[0.5,0.4,0.3],"std":[0.2,0.3,0.4]},"RandomVerticalFlip"`,
		`{"op":"ToDtype","dtype":"float32"},{"op":"ToDtype","dtype":"uint8"},{"op":"ToDtype","dtype":"float16","scale":true}`,
		`"ToTensor",{"op":"Pad","padding":2,"fill":1.0},{"op":"Normalize","mean":0.5,"std":-0.25},{"op":"ToDtype","dtype":"bfloat16"}`,
		`{"op":"ToDtype","dtype":"bfloat16","scale":true},{"op":"Normalize","mean":[0.5,0.4,0.3],"std":[0.2,0.3,0.4]},{"op":"Normalize","mean":0.1,"std":3}`,
	}
	rapid.Check(t, func(t *rapid.T) {
		ops := rapid.SampledFrom(front).Draw(t, "front") + rapid.SampledFrom(ends).Draw(t, "end") + "]"
		whole, err := Compile("rgb", listed(t, ops), rapid.SampledFrom([]string{"nchw", "nhwc"}).Draw(t, "layout"))
		if err != nil {
			t.Fatal(err)
		}
		bare, left := whole.Bare()
		if left == nil {
			t.Fatalf("%s: nothing is left", ops)
		}
		if bare.Digest() != whole.Digest() || bare.DType() != mem.Uint8 || left.DType != whole.DType() {
			t.Fatalf("%s: %s as %s, of %s", ops, bare.DType(), left.DType, whole.DType())
		}
		key := rng.Key(rapid.Uint64().Draw(t, "key"))
		shape, want := result(t, whole, lane, encoded, key)
		at, pixels := result(t, bare, lane, encoded, key)
		w, h := at[1], at[0]
		if whole.chw && !slices.Equal(shape, []int{3, h, w}) || !whole.chw && !slices.Equal(shape, at) {
			t.Fatalf("%s: %v of %v", ops, shape, at)
		}
		got := make([]byte, len(want))
		for i, x := range pixels {
			c, to := i%3, i
			if whole.chw {
				to = c*w*h + i/3
			}
			if v := left.done(x, c); left.DType == mem.Float32 {
				binary.NativeEndian.PutUint32(got[4*to:], math.Float32bits(v))
			} else {
				binary.NativeEndian.PutUint16(got[2*to:], FloatOf(left.DType).Bits(v))
			}
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%s: other bytes", ops)
		}
	})
}

func TestNothingIsLeft(t *testing.T) {
	for _, ops := range []string{
		`["RandomHorizontalFlip"]`,
		`["ToTensor",{"op":"ToDtype","dtype":"uint8","scale":true}]`,
		`["ToTensor","RandomErasing"]`,
		`["ToTensor","RandomErasing",{"op":"ToDtype","dtype":"float16"}]`,
		`["ToTensor",{"op":"RandomApply","transforms":[{"op":"Normalize","mean":0.5,"std":0.5}]}]`,
		`[{"op":"RandomChoice","transforms":["ToTensor",{"op":"ToDtype","dtype":"float32","scale":true}]}]`,
		`["ToTensor",{"op":"Normalize","mean":0.5,"std":1e-42}]`, // no numbers of JSON's
		`["ToTensor",{"op":"Normalize","mean":0,"std":-2}]`,
	} {
		if _, left := mustCompile(t, "rgb", opsOf(t, ops), "").Bare(); left != nil {
			t.Errorf("%s leaves %+v", ops, left)
		}
	}
	if _, left := mustCompile(t, "float", nil, "").Bare(); left != nil {
		t.Errorf("a number leaves %+v", left)
	}
}
