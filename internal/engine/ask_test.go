package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/stagetest"
)

// What an engine is asked about an order, and what it answers: the golden is the
// conversation. Orders and draws are promises, so the answers do not change.
func TestAskAndTold(t *testing.T) {
	root := folder(t, 10)
	c, _ := start(t, os.Getpid(), testVersion)
	spec, _ := json.Marshal(map[string]any{
		"dataset": map[string]any{"path": root},
		"fields": []any{
			map[string]any{"name": "image", "decode": "rgb", "transform": []any{
				map[string]any{"op": "RandomResizedCrop", "size": 2}, map[string]any{"op": "RandomHorizontalFlip"},
			}},
			map[string]any{"name": "label", "decode": "int"},
		},
		"order": map[string]any{"shuffle": "full", "seed": 3}, "batch": map[string]any{"size": 2}, "workers": 1,
	})
	opened := c.ask(&wire.Message{Type: wire.TypeOpen, Spec: spec})
	if opened.Type != wire.TypeOpened {
		t.Fatalf("opened is %+v, %+v", opened, opened.Error)
	}
	first := c.ask(&wire.Message{Type: wire.TypeAsk, Loader: opened.Loader, Ask: &wire.Ask{What: "sum", To: 10}})
	var plan map[string]any
	if err := json.Unmarshal(first.Answer, &plan); err != nil {
		t.Fatal(err)
	}
	receipt := func(sum any) json.RawMessage {
		b, _ := json.Marshal([]map[string]any{{
			"version": 1, "dataset": opened.Digest, "seed": 3, "order": json.RawMessage(`{"shuffle":"full"}`),
			"parts": []any{map[string]any{"epoch": 0, "from": 0, "to": 10, "rank": 0, "world_size": 1, "samples": 10, "sum": sum}},
		}})
		return b
	}
	var talk bytes.Buffer
	for _, q := range []wire.Ask{
		{What: "items"},
		{What: "steps"},
		{What: "steps", From: 4},
		{What: "sum", To: 10},
		{What: "sum", Epoch: 7, From: 3, To: 5},
		{What: "shares", To: 10},
		{What: "explain", Epoch: 1, From: 4},
		{What: "verify", Receipts: receipt(plan["sum"])},
		{What: "verify", Receipts: receipt(strings.Repeat("0", 32))},
		{What: "verify", Receipts: json.RawMessage(`{"not": "a list"}`)},
		{What: "items", Epoch: -1},
		{What: "sum", To: 11},
		{What: "meaning"},
	} {
		told := c.ask(&wire.Message{Type: wire.TypeAsk, Loader: opened.Loader, Ask: &q})
		asked, _ := json.Marshal(q)
		fmt.Fprintf(&talk, "ask  %s\n", asked)
		switch {
		case told.Type == wire.TypeTold:
			var lines bytes.Buffer
			_ = json.Indent(&lines, told.Answer, "     ", " ")
			fmt.Fprintf(&talk, "told %s\n\n", &lines)
		case told.Error != nil:
			fmt.Fprintf(&talk, "%s: %s\n  try: %s\n\n", told.Error.Code, told.Error.What, told.Error.Hint)
		default:
			t.Errorf("%s: %+v", asked, told)
		}
	}
	if m := c.ask(&wire.Message{Type: wire.TypeAsk, Loader: opened.Loader}); m.Error == nil || m.Error.Code != "incompatible" {
		t.Errorf("a message without a question: %+v", m)
	}
	if m := c.ask(&wire.Message{Type: wire.TypeAsk, Loader: 99, Ask: &wire.Ask{What: "items"}}); m.Error == nil {
		t.Errorf("a question about no loader: %+v", m)
	}
	text := strings.NewReplacer(root, "DATA", opened.Digest, "DIGEST").Replace(talk.String())
	stagetest.Golden(t, "ask.txt", []byte(text))
}
