package wire_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/base/wire"
)

// messages draws messages of every field that a test can compare.
var messages = rapid.Custom(func(t *rapid.T) *wire.Message {
	number := rapid.Int64()
	text := rapid.String()
	m := &wire.Message{
		Type: rapid.SampledFrom([]string{wire.TypeOpen, wire.TypeBatch, wire.TypeTold, wire.TypeEnd, "later"}).Draw(t, "type"),
		Req:  number.Draw(t, "req"), Epoch: number.Draw(t, "epoch"), Position: number.Draw(t, "position"),
		Steps: number.Draw(t, "steps"), Step: number.Draw(t, "step"), Slot: number.Draw(t, "slot"),
		What: text.Draw(t, "what"), Pipeline: text.Draw(t, "pipeline"),
		Notes: rapid.SliceOfN(text, 0, 3).Draw(t, "notes"), Rows: rapid.Int().Draw(t, "rows"),
	}
	for range rapid.IntRange(0, 2).Draw(t, "classes") {
		m.Classes = append(m.Classes, jsontext.Name(rapid.SliceOfN(rapid.Byte(), 0, 6).Draw(t, "class")))
	}
	for range rapid.IntRange(0, 2).Draw(t, "columns") {
		m.Data = append(m.Data, wire.Column{Name: text.Draw(t, "name"), Off: number.Draw(t, "off"), Shape: rapid.SliceOfN(rapid.Int(), 0, 3).Draw(t, "shape"), Data: number.Draw(t, "data")})
	}
	if rapid.Bool().Draw(t, "error") {
		m.Error = wire.FromError(errs.New(errs.Damaged, "%s", text.Draw(t, "sentence")).At(errs.Where{
			File: string(rapid.SliceOfN(rapid.Byte(), 0, 6).Draw(t, "file")), Offset: errs.Known(number.Draw(t, "offset")), Sample: errs.Known(number.Draw(t, "sample")),
		}))
	}
	if m.Notes != nil && len(m.Notes) == 0 {
		m.Notes = nil
	}
	for i := range m.Data {
		if len(m.Data[i].Shape) == 0 {
			m.Data[i].Shape = nil
		}
	}
	return m
})

// A stream of frames is read as the messages that were written, whatever pieces the
// socket gives it in, and with one scratch buffer for all of them.
func TestFramesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(messages, 0, 5).Draw(t, "messages")
		var stream []byte
		for _, m := range all {
			var err error
			if stream, err = wire.Append(stream, m); err != nil {
				t.Fatal(err)
			}
		}
		var r io.Reader = bytes.NewReader(stream)
		switch rapid.IntRange(0, 2).Draw(t, "pieces") {
		case 1:
			r = iotest.OneByteReader(r)
		case 2:
			r = iotest.HalfReader(r)
		}
		var buf []byte
		for i, want := range all {
			got, grown, err := wire.Read(r, buf)
			if err != nil {
				t.Fatal(err)
			}
			buf = grown
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("message %d: %s", i, diff)
			}
		}
		if _, _, err := wire.Read(r, buf); !errors.Is(err, io.EOF) {
			t.Fatalf("at the end: %v", err)
		}
	})
}

// A stream that ends within a frame is an error, at every byte, and not an end.
func TestCutStreams(t *testing.T) {
	frame, err := wire.Append(nil, &wire.Message{Type: wire.TypeNext, Req: 12, Timeout: 5000})
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n < len(frame); n++ {
		if _, _, err := wire.Read(bytes.NewReader(frame[:n]), nil); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut after %d bytes of %d: %v", n, len(frame), err)
		}
	}
}

// A frame that is whole and cannot be decoded names its request, so that it can be
// answered, and the next frame is read.
func TestBadMessageNamesItsRequest(t *testing.T) {
	for _, c := range []struct {
		name, text string
		req        int64
		key        string
	}{
		{"a number that is a text", `{"type":"pass","epoch":"two","req":7}`, 7, "epoch"},
		{"a number that is too large", `{"req":7,"position":1e300}`, 7, "position"},
		{"an array in place of an object", `{"req":7,"ask":[1]}`, 7, "ask"},
		{"cut within", `{"req":7,"type":`, 0, ""},
		{"not an object", `[]`, 0, ""},
		{"nothing", ``, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			stream := append([]byte{byte(len(c.text)), 0, 0, 0}, c.text...)
			stream, _ = wire.Append(stream, &wire.Message{Type: wire.TypeEnd, Req: 8})
			r := bytes.NewReader(stream)
			_, buf, err := wire.Read(r, nil)
			var bad *wire.BadMessage
			if !errors.As(err, &bad) || bad.Message.Req != c.req || bad.Key != c.key || bad.Err == nil || !strings.HasPrefix(bad.Error(), "wire: ") {
				t.Fatalf("%#v", err)
			}
			if m, _, err := wire.Read(r, buf); err != nil || m.Req != 8 {
				t.Errorf("the next frame: %+v, %v", m, err)
			}
		})
	}
}

// No bytes that a client sends make an engine take memory for them unseen, panic or
// read on without end.
func FuzzRead(f *testing.F) {
	frame, _ := wire.Append(nil, &wire.Message{Type: wire.TypeHello, Version: "x"})
	f.Add(frame)
	f.Add([]byte{255, 255, 255, 255, 1})
	f.Add([]byte{2, 0, 0, 0, '{', '}'})
	files, _ := filepath.Glob("../../../testdata/wire/*.json")
	for _, name := range files { // every message of both sides
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		for {
			m, _, err := wire.Read(r, nil)
			var bad *wire.BadMessage
			if err != nil && !errors.As(err, &bad) {
				return
			}
			if err == nil && m == nil {
				t.Fatal("neither a message nor an error")
			}
		}
	})
}

// An error keeps all that a client tells its user: its words, its location, its class.
func TestErrorsTravel(t *testing.T) {
	for code, class := range errs.Classes {
		sent := errs.New(code, "it went wrong").At(errs.Where{Shard: "a.tar", Member: "x\xff", Sample: errs.Known(0)}).
			Because(errors.New("a cause\x1b")).Try("again")
		b, err := json.Marshal(wire.FromError(sent))
		if err != nil {
			t.Fatal(err)
		}
		var got wire.Error
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		if got.Code != code || got.Exception != class.Python || got.What != "it went wrong" || got.Hint != "again" || got.Where.String() != sent.Where.String() {
			t.Errorf("%s arrives as %+v", code, got)
		}
		if n, known := got.Where.Offset.Get(); known {
			t.Errorf("%s: an offset of %d came from nowhere", code, n)
		}
	}
}
