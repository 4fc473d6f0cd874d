package engine

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/wire"
)

// raw sends a frame as it is written here and returns the answer to request req.
func (c *client) raw(req int64, body string) *wire.Message {
	c.t.Helper()
	frame := binary.LittleEndian.AppendUint32(nil, uint32(len(body)))
	if _, err := c.sock.Write(append(frame, body...)); err != nil {
		c.t.Fatalf("%s: %v", body, err)
	}
	for {
		if a := c.read(); a.Req == req && a.Type != wire.TypeProgress {
			return a
		}
	}
}

// A message that cannot be decoded is one request's error, and the others go on.
func TestAMessageThatCannotBeDecodedIsAnswered(t *testing.T) {
	c, _ := start(t, os.Getpid(), testVersion)
	opened := c.open(folder(t, 50))
	for body, want := range map[string]string{
		`{"type":"pass","req":71,"loader":%d,"epoch":9223372036854775808}`:               `epoch is 9223372036854775808: it must be a whole number from -2^63 to 2^63 - 1`,
		`{"type":"pass","req":71,"loader":%d,"epoch":1e400}`:                             `epoch is 1e400: it must be a whole number`,
		`{"req":71,"type":"pass","loader":"%d","epoch":0}`:                               `loader is string: it must be a whole number`,
		`{"type":"pass","req":71,"loader":%d,"list":{"ids":[0,1.5]}}`:                    `list.ids is 1.5: it must be a whole number`,
		`{"type":"ask","req":71,"loader":%d,"ask":{"what":[]}}`:                          `ask.what is array: it must be text`,
		`{"type":"pass","req":71,"loader":%d,"epoch":9223372036854775807,"position":-1}`: `epoch 9223372036854775807, position -1: neither can be negative`,
	} {
		a := c.raw(71, fmt.Sprintf(body, opened.Loader))
		if a.Type != wire.TypeError || a.Error == nil || a.Error.What != want {
			t.Errorf("%s:\n %+v\nwant\n %s", body, a.Error, want)
		}
	}
	if a := c.raw(0, `{"type":"pass","req":7`); a.Error == nil || a.Error.Code != errs.Incompatible {
		t.Errorf("what is not JSON: %+v", a)
	}
	if passed := c.ask(&wire.Message{Type: wire.TypePass, Loader: opened.Loader}); passed.Type != wire.TypePassed {
		t.Errorf("afterwards: %+v", passed.Error)
	}
}

// What is not a frame ends the engine, and not as if all were well.
func TestWhatIsNotAFrameIsNoCleanEnd(t *testing.T) {
	c, _ := start(t, os.Getpid(), testVersion)
	if _, err := c.sock.Write([]byte{255, 255, 255, 255}); err != nil {
		t.Fatal(err)
	}
	if err := <-c.gone; err == nil {
		t.Error("the engine ended with status 0")
	}
}

// Whatever numbers requests hold, the engine answers and lives.
func TestNoNumberEndsTheEngine(t *testing.T) {
	c, _ := start(t, os.Getpid(), testVersion)
	root := folder(t, 50)
	opened := c.open(root)
	numbers := []string{
		"0", "1", "2", "7", "8", "49", "50", "51", "-1", "-9223372036854775808", "9223372036854775807", "9223372036854775806",
		"9223372036854775800", "4611686018427387904", "9007199254740992", "16777216", "16777217", "2147483648", "4294967296", "9223372036854775808",
		"18446744073709551615", "18446744073709551616", "1e30", "1.5", "-0.0",
	}
	rapid.Check(t, func(rt *rapid.T) {
		n := func(name string) string { return rapid.SampledFrom(numbers).Draw(rt, name) }
		loader, body := fmt.Sprint(opened.Loader), ""
		ids := func() string {
			return fmt.Sprintf(`{"ids":[3,1,2],"place":%s,"item":%s%s}`, n("place"), n("item"),
				rapid.SampledFrom([]string{"", `,"cuts":[1,2]`, `,"cuts":[` + n("cut") + `]`}).Draw(rt, "cuts"))
		}
		kind := rapid.SampledFrom([]string{"pass", "list", "ask", "spec", "next", "stats", "table"}).Draw(rt, "kind")
		switch kind {
		case "pass":
			body = fmt.Sprintf(`"type":"pass","loader":%s,"epoch":%s,"position":%s,"step":%s,"bundle":%s`, loader, n("epoch"), n("position"), n("step"), n("bundle"))
		case "list":
			body = fmt.Sprintf(`"type":"pass","loader":%s,"epoch":%s,"step":%s,"list":%s`, loader, n("epoch"), n("step"), ids())
		case "ask":
			body = fmt.Sprintf(`"type":"ask","loader":%s,"ask":{"what":%q,"epoch":%s,"from":%s,"to":%s,"receipts":[{"version":1,"parts":[{"epoch":%s,"from":%s,"to":%s,"rank":%s,"world_size":%s}]}]}`,
				loader, rapid.SampledFrom([]string{"steps", "items", "sum", "shares", "explain", "verify"}).Draw(rt, "what"),
				n("epoch"), n("from"), n("to"), n("epoch"), n("from"), n("to"), n("rank"), n("world"))
		case "spec":
			body = `"type":"open","spec":` + hostileSpec(rt, n, root)
		default:
			body = fmt.Sprintf(`"type":%q,"loader":%s,"pass":%s,"timeout":50`, kind, n("loader"), n("pass"))
		}
		c.req++
		a := c.raw(c.req, fmt.Sprintf(`{"req":%d,%s}`, c.req, body))
		switch a.Type {
		case wire.TypeOpened:
			for _, epoch := range []int64{0, 1<<63 - 1} {
				c.walk(a.Loader, epoch)
			}
			c.send(&wire.Message{Type: wire.TypeClose, Loader: a.Loader})
		case wire.TypePassed:
			c.drain(a.Pass)
		case wire.TypeError:
			if a.Error.Code == errs.Bug {
				rt.Errorf("%s: %+v", body, a.Error)
			}
		}
	})
}

// hostileSpec is a Spec with numbers drawn from n at some of its keys.
func hostileSpec(rt *rapid.T, n func(string) string, root string) string {
	spec := map[string]map[string]json.RawMessage{}
	for range rapid.IntRange(1, 4).Draw(rt, "keys") {
		group, key, _ := strings.Cut(rapid.SampledFrom([]string{
			"order.seed", "order.block", "order.window", "order.streams", "order.num_samples", "batch.size", "batch.global_size",
			"batch.bucket", "batch.tokens", "batch.pack", "batch.window", "deliver.prefetch", "deliver.prefetch_factor",
			"deliver.memory", "cache.memory", "on_bad.max_bad", ".rank", ".world_size", ".workers",
		}).Draw(rt, "key"), ".")
		if spec[group] == nil {
			spec[group] = map[string]json.RawMessage{}
		}
		spec[group][key] = json.RawMessage(n(key))
	}
	extra := func(group, key, value string) {
		if spec[group] == nil {
			spec[group] = map[string]json.RawMessage{}
		}
		spec[group][key] = json.RawMessage(value)
	}
	extra("order", "shuffle", rapid.SampledFrom([]string{`"none"`, `"full"`, `"block"`, `"window"`}).Draw(rt, "shuffle"))
	extra("order", "tail", rapid.SampledFrom([]string{`"pad"`, `"fill"`, `"drop"`}).Draw(rt, "tail"))
	if rapid.Bool().Draw(rt, "replacement") {
		extra("order", "replacement", "true")
	}
	if spec["batch"]["bucket"] != nil || spec["batch"]["tokens"] != nil || spec["batch"]["pack"] != nil {
		extra("batch", "lengths", "["+strings.TrimSuffix(strings.Repeat("3,", 50), ",")+"]")
	}
	all := map[string]any{
		"dataset": map[string]any{"path": root},
		"fields":  []any{map[string]any{"name": "label", "decode": "int"}},
	}
	for group, keys := range spec {
		for key, value := range keys {
			if group == "" {
				all[key] = value
			}
		}
		if group != "" {
			all[group] = keys
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		rt.Fatal(err)
	}
	return string(text)
}

// walk begins an epoch of a loader and takes some of its batches.
func (c *client) walk(loader, epoch int64) {
	passed := c.ask(&wire.Message{Type: wire.TypePass, Loader: loader, Epoch: epoch})
	if passed.Type == wire.TypePassed {
		c.drain(passed.Pass)
	}
}

// drain takes up to 30 batches of a pass and ends it.
func (c *client) drain(pass int64) {
	for range 30 {
		b := c.ask(&wire.Message{Type: wire.TypeNext, Pass: pass, Timeout: 20000})
		if b.Type == wire.TypeEnd {
			return
		}
		if b.Type == wire.TypeError {
			break
		}
		c.giveBack(b.Slot, wire.SlotFree)
	}
	c.send(&wire.Message{Type: wire.TypeCancel, Pass: pass})
}
