package kernel

import (
	"bytes"
	"errors"
	"os"
	"testing"
)

// testdata/indexed.jpg is what IndexJPEG makes of plain420.jpg, for ever: packing
// again gives the same bytes. Every decoder makes the same of both.
func TestIndexGolden(t *testing.T) {
	plain, err := os.ReadFile("testdata/plain420.jpg")
	if err != nil {
		t.Fatal(err)
	}
	indexed, err := os.ReadFile("testdata/indexed.jpg")
	if err != nil {
		t.Fatal(err)
	}
	if h, err := ReadHeader(indexed); err != nil || h.Restart != 6 {
		t.Errorf("%+v, %v", h, err)
	}
	each(t, func(t *testing.T, l *Lane) {
		if d := diff(run(t, l, Job{JPEG: indexed}), run(t, l, Job{JPEG: plain})); d != "" {
			t.Error(d)
		}
		box := []Step{{Op: OpCrop, X: 100, Y: 33, W: 70, H: 50}}
		if d := diff(run(t, l, Job{JPEG: indexed, Steps: box}), run(t, l, Job{JPEG: plain, Steps: box})); d != "" {
			t.Error(d)
		}
		out, done, err := l.IndexJPEG(nil, plain, IndexOptions{})
		if l.target == "go" {
			var u UnsupportedError
			if !errors.As(err, &u) || len(out) > 0 {
				t.Errorf("without C: %v", err)
			}
			return
		}
		if err != nil || !bytes.Equal(out, indexed) {
			t.Errorf("%d bytes, not the %d of the golden: %+v, %v", len(out), len(indexed), done, err)
		}
	})
	l := NewLane()
	defer l.Close()
	for name, o := range map[string]IndexOptions{"segment": {Segment: -1}, "long segment": {Segment: 65536}, "shrink": {Growth: -1}, "growth": {Growth: 10001}} {
		var j JobError
		if _, _, err := l.IndexJPEG(nil, plain, o); !errors.As(err, &j) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
