package transform

import (
	"slices"
	"testing"
	"time"

	"github.com/stoker-data/stoker/internal/base/rng"
)

// What a picture took is given to the operations that cause it, and no more than it
// took; the pixels are the same as without.
func TestDivide(t *testing.T) {
	l := NewLane()
	defer l.Close()
	encoded := readSource(t, "coffee.jpg")
	for _, c := range []struct {
		ops   string
		names []string
		costs []bool // whether it may cost anything
	}{
		{
			`[{"op":"RandomResizedCrop","size":64},{"op":"RandomHorizontalFlip","p":1},{"op":"ToTensor"},{"op":"Normalize","mean":[0.5,0.5,0.5],"std":[0.2,0.2,0.2]}]`,
			[]string{"RandomResizedCrop", "RandomHorizontalFlip", "ToTensor", "Normalize"},
			[]bool{true, false, true, true},
		},
		{`[{"op":"CenterCrop","size":64},{"op":"RandomVerticalFlip","p":1}]`, []string{"CenterCrop", "RandomVerticalFlip"}, []bool{true, true}},
		{`[{"op":"Compose","transforms":[{"op":"ToImage"},{"op":"Resize","size":[40,40]}]},{"op":"RandomApply","transforms":[{"op":"Pad","padding":2}],"p":0}]`, []string{"Resize", "RandomApply"}, []bool{true, false}},
		{
			`["RandomHorizontalFlip",{"op":"ColorJitter","brightness":[2,2]},{"op":"RandomInvert","p":1},{"op":"RandomInvert","p":0},{"op":"RandomApply","transforms":[{"op":"ColorJitter","hue":[0.1,0.1]}],"p":1}]`,
			[]string{"RandomHorizontalFlip", "ColorJitter", "RandomInvert", "RandomInvert", "RandomApply"},
			[]bool{true, true, true, false, true},
		},
		{
			`[{"op":"GaussianBlur","kernel_size":9},{"op":"RandomAdjustSharpness","sharpness_factor":2,"p":0},{"op":"RandomErasing","p":1},{"op":"RandomErasing","p":0}]`,
			[]string{"GaussianBlur", "RandomAdjustSharpness", "RandomErasing", "RandomErasing"},
			[]bool{true, false, true, false},
		},
		{
			`["ToTensor",{"op":"RandomErasing","p":1,"value":"random"},{"op":"RandomErasing","p":0}]`,
			[]string{"ToTensor", "RandomErasing", "RandomErasing"},
			[]bool{true, true, false},
		},
		{`[]`, nil, nil},
	} {
		p, err := Compile("rgb", listed(t, c.ops), "")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(p.Names(), c.names) {
			t.Fatalf("%s does %v, not %v", c.ops, p.Names(), c.names)
		}
		_, want := result(t, p, l, encoded, rng.Key(3))
		if _, ok := p.Divide(l, nil); ok {
			t.Error("nobody took the time, and there is one")
		}
		l.Timed(true)
		begin := time.Now()
		_, got := result(t, p, l, encoded, rng.Key(3))
		most := time.Since(begin)
		parts, ok := p.Divide(l, nil)
		l.Timed(false)
		if !ok || !slices.Equal(got, want) || len(parts) != len(c.names) {
			t.Fatalf("%s: %v, %v", c.ops, parts, ok)
		}
		var sum time.Duration
		for i, d := range parts {
			sum += d
			if (d > 0) != c.costs[i] {
				t.Errorf("%s took %v", c.names[i], d)
			}
		}
		if sum > most {
			t.Errorf("%s took %v, and its operations %v", c.ops, most, sum)
		}
	}
}
