package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	stoker "github.com/stoker-data/stoker"
)

// specFile is a Spec of small pictures over a dataset.
func specFile(t *testing.T, dataset, more string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "train.yaml")
	write(t, path, []byte(`
dataset: {path: "`+dataset+`"}
fields: [{name: image, from: image;jpg, decode: rgb, transform: [{op: RandomResizedCrop, size: 16}, {op: RandomHorizontalFlip}]}]
`+more))
	return path
}

func openSpec(t *testing.T, path string, change func(*stoker.Spec)) *stoker.Loader {
	t.Helper()
	spec, err := readSpec(path)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&spec)
	}
	l, err := stoker.Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func writeJSON(t *testing.T, path string, v any) string {
	t.Helper()
	raw, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, raw)
	return path
}

// What order says is what a loader delivers: every rank, every tail, text and
// JSON, padding marked.
func TestOrderIsWhatIsDelivered(t *testing.T) {
	root := folder(t, 5)
	for _, tail := range []string{"pad", "fill", "drop"} {
		path := specFile(t, root, "order: {shuffle: full, seed: 9, tail: "+tail+"}\nbatch: {size: 2}\n")
		for rank := range 2 {
			l := openSpec(t, path, func(s *stoker.Spec) { s.World, s.Rank = 2, rank })
			l.SetEpoch(3)
			var text, lines strings.Builder
			for b, err := range l.Batches(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				var words []string
				for i, id := range b.IDs() {
					word := strconv.FormatInt(id, 10)
					if !b.Valid()[i] {
						word = "(" + word + ")"
					}
					words = append(words, word)
				}
				fmt.Fprintln(&text, strings.Join(words, " "))
				ids, _ := json.Marshal(b.IDs())
				valid, _ := json.Marshal(b.Valid())
				end := "}"
				if slices.Contains(b.Valid(), false) {
					end = `,"valid":` + string(valid) + "}"
				}
				fmt.Fprintf(&lines, `{"epoch":3,"step":%d,"position":%d,"rank":%d,"world_size":2,"ids":%s%s`+"\n", b.Step, b.Position, rank, ids, end)
			}
			args := []string{"order", path, "--epoch", "3", "--world-size", "2", "--rank", strconv.Itoa(rank)}
			if got := command(t, args...); got.status != 0 || got.err != "" || got.out != text.String() {
				t.Errorf("%s, rank %d: %+v\nwant %s", tail, rank, got, text.String())
			}
			if got := command(t, append(args, "--format", "json")...); got.status != 0 || got.out != lines.String() {
				t.Errorf("%s, rank %d: %+v\nwant %s", tail, rank, got, lines.String())
			}
			second := strings.SplitAfter(text.String(), "\n")[1:3]
			if got := command(t, append(args, "--step", "1", "--steps", "2")...); got.out != strings.Join(second, "") {
				t.Errorf("two steps: %q, not %q", got.out, second)
			}
			if got := command(t, append(args, "--step", "1")...); got.out != second[0] {
				t.Errorf("step 1: %q, not %q", got.out, second[0])
			}
		}
	}
}

// A golden: it may never change.
func TestOrderGolden(t *testing.T) {
	path := specFile(t, folder(t, 4), "order: {shuffle: full, seed: 1}\nbatch: {size: 5}\n")
	var text strings.Builder
	for _, flags := range []string{"", "--epoch 1", "--world-size 2 --rank 1", "--digest", "--digest --epoch 1"} {
		got := command(t, append([]string{"order", path}, strings.Fields(flags)...)...)
		if got.status != 0 || got.err != "" {
			t.Fatalf("%+v", got)
		}
		fmt.Fprintf(&text, "$ stoker order train.yaml %s\n%s", flags, got.out)
	}
	golden(t, "order.txt", text.String())
}

// The digest is that of the dataset's names, sizes and labels and of the order:
// of no path, no world, no batch size.
func TestOrderDigest(t *testing.T) {
	first := command(t, "order", specFile(t, folder(t, 4), "order: {shuffle: full, seed: 1}\nbatch: {size: 5}\n"), "--digest", "--json")
	if first.status != 0 {
		t.Fatalf("%+v", first)
	}
	root := folder(t, 4)
	for more, same := range map[string]bool{
		"order: {shuffle: full, seed: 1}\nbatch: {size: 3}\nworld_size: 3\nrank: 1\n": true,
		"order: {shuffle: full, seed: 2}\n":                                           false,
		"order: {shuffle: none, seed: 1}\n":                                           false,
	} {
		got := command(t, "order", specFile(t, root, more), "--digest", "--json")
		if got.status != 0 || (got.out == first.out) != same {
			t.Errorf("%s: the same: %v\n%s", more, got.out == first.out, got.out)
		}
	}
}

func TestOrderExplain(t *testing.T) {
	root := folder(t, 4)
	path := specFile(t, root, "order: {shuffle: full, seed: 1}\nbatch: {size: 3}\n")
	got := command(t, "order", path, "--explain", "--step", "2")
	if got.status != 0 || got.err != "" {
		t.Fatalf("%+v", got)
	}
	golden(t, "order-explain.txt", spaces.ReplaceAllString(strings.ReplaceAll(got.out, root, "ROOT"), " "))
	write(t, filepath.Join(root, "coffee", "00.jpg"), []byte("no picture, and as long as before?"))
	for step := range 4 {
		if got = command(t, "order", path, "--explain", "--step", strconv.Itoa(step)); got.status == 3 {
			break
		}
	}
	if got.status != 3 || !strings.Contains(got.err, "stoker verify") || !strings.Contains(got.err, "coffee/00.jpg") {
		t.Errorf("a damaged sample: %+v", got)
	}
}

func TestOrderQuality(t *testing.T) {
	dir := t.TempDir()
	for i := range 6 {
		shard(t, filepath.Join(dir, fmt.Sprintf("t-%d.tar", i)), 5+i)
	}
	path := specFile(t, filepath.Join(dir, "t-{0..5}.tar"), "order: {shuffle: block, streams: 2, window: 4}\nbatch: {size: 4}\n")
	got := command(t, "order", path, "--quality")
	if got.status != 0 || got.err != "" {
		t.Fatalf("%+v", got)
	}
	golden(t, "order-quality.txt", got.out)
	golden(t, "order-quality-folder.txt", command(t, "order", folder(t, 9), "--quality").out)
	got = command(t, "order", path, "--quality", "--json")
	golden(t, "order-quality-shape.txt", shape(t, got.out))
}

// receipts are what so many ranks received in the first two epochs.
func receipts(t *testing.T, path string, world int) (out []stoker.Receipt) {
	t.Helper()
	for rank := range world {
		l := openSpec(t, path, func(s *stoker.Spec) { s.World, s.Rank = world, rank })
		for range 2 {
			for _, err := range l.Batches(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		out = append(out, l.Receipt())
	}
	return out
}

func TestOrderVerify(t *testing.T) {
	path := specFile(t, folder(t, 5), "order: {shuffle: full, seed: 9}\nbatch: {size: 2}\n")
	dir := t.TempDir()
	verify := func(all ...stoker.Receipt) result {
		args := []string{"order", path, "--verify"}
		for i, r := range all {
			args = append(args, writeJSON(t, filepath.Join(dir, fmt.Sprint(i)), r))
		}
		return command(t, args...)
	}
	whole := receipts(t, path, 2)
	got := verify(whole...)
	if got.status != 0 || got.err != "" {
		t.Fatalf("%+v", got)
	}
	golden(t, "order-verify.txt", got.out)
	list := writeJSON(t, filepath.Join(dir, "list.json"), whole)
	if got = command(t, "order", path, "--verify", list); got.status != 0 {
		t.Errorf("one file of all receipts: %+v", got)
	}
	for name, c := range map[string]struct {
		all  []stoker.Receipt
		want string
	}{
		"one id changed": {tampered(whole, func(p *stoker.ReceiptPart) { p.Sum.Less(4, 7); p.Sum.Add(4, 8) }), "not the same ones in the same places"},
		"a sample more":  {tampered(whole, func(p *stoker.ReceiptPart) { p.Samples++ }), "16 samples were delivered, but the plan has 15 there"},
		"a rank missing": {whole[:1], "of 2 ranks, there is no receipt of 1 that ends there"},
		"a part twice":   {append(slices.Clone(whole), whole[1]), "rank 1 of 2 came 2 times"},
		"another seed":   {seeded(whole, 10), "seed is 10"},
	} {
		got := verify(c.all...)
		if strings.Contains(got.out, "the plan has 0") { // it was not asked
			t.Errorf("%s: %s", name, got.out)
		}
		if got.status != 4 || !strings.Contains(got.err, c.want) || !strings.Contains(got.out, "wrong: ") || !strings.Contains(got.out, c.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for text, want := range map[string]string{
		`{"version":1,"epoch":0,"position":3,"order":{}}`: "this is a state, not a receipt",
		`{"version":2,"parts":[]}`:                        "has version 2",
		`{"version":1,"parts":[{"sum":"xyz"}]}`:           "32 digits",
		`{"version":1,"parts":[`:                          "the file is truncated",
	} {
		bad := filepath.Join(dir, "bad.json")
		write(t, bad, []byte(text))
		if got := command(t, "order", path, "--verify", bad); got.status != 2 && got.status != 7 || got.out != "" || !strings.Contains(got.err, want) {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

// tampered is receipts, the last part of the first of them changed.
func tampered(all []stoker.Receipt, change func(*stoker.ReceiptPart)) []stoker.Receipt {
	all = slices.Clone(all)
	all[0].Parts = slices.Clone(all[0].Parts)
	change(&all[0].Parts[len(all[0].Parts)-1])
	return all
}

func seeded(all []stoker.Receipt, seed uint64) []stoker.Receipt {
	all = slices.Clone(all)
	for i := range all {
		all[i].Seed = seed
	}
	return all
}

func TestOrderMistakes(t *testing.T) {
	root := folder(t, 2)
	path := specFile(t, root, "batch: {size: 4, tail: pad}\n")
	good := specFile(t, root, "batch: {global_size: 4}\n")
	for _, c := range []struct{ args, want string }{
		{"PATH", "unknown key \"batch.tail\""},
		{"GOODX.yaml", "cannot read the Spec"},
		{"GOOD --world-size 3", "world sizes that divide it are 1, 2, 4"},
		{"GOOD --world-size 2 --rank 2", "ranks go from 0 to world_size - 1"},
		{"GOOD --step 2", "epoch 0 has no step 2\n  try: its last one is 1"},
		{"GOOD --step=-1", "epochs and steps count from 0"},
		{"GOOD --epoch=-1 --digest", "epochs and steps count from 0"},
		{"GOOD --format yaml", "--format must be one of text, json"},
		{"GOOD --explain", "--explain needs a step\n  try: stoker order GOOD --explain --step 0"},
		{"GOOD --digest --quality", "--digest and --quality cannot be combined"},
		{"GOOD --verify", "--verify needs receipts"},
		{"GOOD r.json", "\"r.json\": give one Spec, or one dataset\n  try: quote a pattern"},
		{"GOOD --verify r.json", "there is no \"r.json\""},
		{"ROOT --batch-size 3", "unknown flag --batch-size"},
	} {
		fill := strings.NewReplacer("PATH", path, "GOOD", good, "ROOT", root)
		got := command(t, append([]string{"order"}, strings.Fields(fill.Replace(c.args))...)...)
		if got.status != 2 || got.out != "" || !strings.Contains(got.err, fill.Replace(c.want)) {
			t.Errorf("%s: %+v", c.args, got)
		}
	}
	dropped := specFile(t, root, "batch: {size: 7}\norder: {tail: drop}\n")
	if got := command(t, "order", dropped); got.status != 2 || !strings.Contains(got.err, "epoch 0 has no step: 6 samples fill no batch of 7") {
		t.Errorf("%+v", got)
	}
}
