package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/stoker-data/stoker/internal/base/stats"
)

// Every file of testdata/wire is one frame's JSON, as the other language writes
// or reads it: no field of it may be unknown here, or get lost.
func TestGoldenFrames(t *testing.T) {
	files, err := filepath.Glob("../../../testdata/wire/*.json")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d golden frames: %v", len(files), err)
	}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var m Message
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&m); err != nil {
			t.Errorf("%s: %v", f, err)
			continue
		}
		frame, err := Append(nil, &m)
		if err != nil {
			t.Fatal(err)
		}
		if n := binary.LittleEndian.Uint32(frame); int(n) != len(frame)-4 {
			t.Errorf("%s: length %d of %d", f, n, len(frame)-4)
		}
		again, _, err := Read(bytes.NewReader(frame), nil)
		if err != nil {
			t.Fatal(err)
		}
		var want, got map[string]any
		_ = json.Unmarshal(raw, &want)
		_ = json.Unmarshal(frame[4:], &got)
		for k, v := range want {
			if !reflect.DeepEqual(got[k], v) && !zero(v) {
				t.Errorf("%s: %q was %v, comes back as %v", f, k, v, got[k])
			}
		}
		again.Spec, m.Spec, again.Stats, m.Stats = nil, nil, nil, nil
		if d := cmp.Diff(&m, again); d != "" {
			t.Errorf("%s:\n%s", f, d)
		}
	}
}

func zero(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.IsZero() || (r.Kind() == reflect.Slice || r.Kind() == reflect.Map) && r.Len() == 0
}

func TestBadFrames(t *testing.T) {
	for name, b := range map[string][]byte{
		"cut length": {1, 2},
		"cut body":   {9, 0, 0, 0, '{'},
		"too long":   {255, 255, 255, 255},
		"no JSON":    {2, 0, 0, 0, '{', '{'},
	} {
		if _, _, err := Read(bytes.NewReader(b), nil); err == nil {
			t.Errorf("%s: no error", name)
		} else if strings.Contains(err.Error(), "panic") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The page's layout is arithmetic that both languages repeat.
func TestPageLayout(t *testing.T) {
	if stats.WorkSize != WorkBytes {
		t.Errorf("an entry of the board takes %d bytes, of the page %d", stats.WorkSize, WorkBytes)
	}
	if PageSlots+MaxSlots > PageWork || PageWork+MaxWork*WorkBytes > PageBytes {
		t.Error("the parts of the page overlap")
	}
	var w stats.Work
	w.Begin(StageDecode, 7, -3)
	b := unsafe.Slice((*byte)(unsafe.Pointer(&w)), WorkBytes)
	if binary.LittleEndian.Uint32(b) != StageDecode || binary.LittleEndian.Uint32(b[4:]) != 7 || int64(binary.LittleEndian.Uint64(b[8:])) != -3 {
		t.Errorf("an entry is % x", b)
	}
}
