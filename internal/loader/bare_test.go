package loader

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stoker-data/stoker/internal/stage/transform"
)

// Whoever makes the floats of pictures, states, receipts and digests are the same; only the
// memory of the pictures is not. Pictures that are mixed are floats here.
func TestBareLoadersHaveTheSameStates(t *testing.T) {
	s := ground(t)
	root := pictures(t, 6)
	floats := imageSpec(root)
	floats.Fields[0].Transform = ops(t, `[{"op":"Resize","size":[40,48]},"ToTensor",{"op":"Normalize","mean":0.5,"std":0.25}]`)
	halves := imageSpec(root)
	halves.Fields[0].Transform = ops(t, `[{"op":"Resize","size":[40,48]},{"op":"ToDtype","dtype":"bfloat16","scale":true}]`)
	for _, spec := range []Spec{imageSpec(root), halves, floats, with(floats, mixing(t, cutMix3))} {
		whole, bare := open(t, s, spec), open(t, s, spec, Options{Bare: true})
		if d := cmp.Diff(whole.State(0, 4), bare.State(0, 4)); d != "" {
			t.Errorf("states: %s", d)
		}
		if whole.Pipeline() != bare.Pipeline() || whole.Digest() != bare.Digest() {
			t.Error("the digests differ")
		}
		left := len(spec.Fields[0].Transform) > 0 && spec.BatchTransform == nil
		for i, f := range bare.Fields() {
			want := whole.Fields()[i]
			if (f.Left != nil) != (left && i == 0) {
				t.Errorf("%s: left %+v", f.Name, f.Left)
			}
			if f.Left != nil {
				want.Axes, want.Shape, want.Left = "hwc", []int{40, 48, 3}, f.Left
				if got := bare.layout.Bytes(); got >= whole.layout.Bytes() {
					t.Errorf("%s: a batch takes %d bytes", f.Name, got)
				}
			}
			if d := cmp.Diff(want, f, cmp.AllowUnexported(transform.Left{})); d != "" {
				t.Errorf("%s: %s", f.Name, d)
			}
		}
	}
}
