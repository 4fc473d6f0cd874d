package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	stoker "github.com/stoker-data/stoker"
)

// stateAfter is the state after so many steps.
func stateAfter(t *testing.T, path string, epoch int64, steps int) stoker.State {
	t.Helper()
	l := openSpec(t, path, nil)
	l.SetEpoch(epoch)
	if err := l.Skip(steps); err != nil {
		t.Fatal(err)
	}
	st := l.State()
	st.Skipped = nil
	return st
}

func TestDiffStates(t *testing.T) {
	root := folder(t, 5)
	path := specFile(t, root, "order: {shuffle: full, seed: 9}\nbatch: {size: 2}\n")
	dir := t.TempDir()
	a := writeJSON(t, filepath.Join(dir, "a.json"), stateAfter(t, path, 0, 2))
	ids := strings.Fields(command(t, "order", path).out)
	for name, c := range map[string]struct {
		other  stoker.State
		spec   bool
		status int
		want   []string
	}{
		"the same":    {stateAfter(t, path, 0, 2), false, 0, []string{"the same stream, at the same place\n"}},
		"ahead":       {stateAfter(t, path, 0, 5), false, 4, []string{"B is ahead by 6 places: 10 against 4 of epoch 0", "the same stream, at another place\n"}},
		"less far":    {stateAfter(t, path, 0, 1), true, 4, []string{"A is ahead by 2 places", "2 samples are between them: " + strings.Join(ids[2:4], ", ") + "\n"}},
		"next epochs": {stateAfter(t, path, 2, 1), true, 4, []string{"B is ahead by 28 places: epoch 2, place 2 against epoch 0, place 4", "28 samples are between them: " + strings.Join(ids[4:12], ", ") + ", and 20 more\n"}},
		"no spec":     {stateAfter(t, path, 1, 0), false, 4, []string{"B is ahead: epoch 1, place 0 against epoch 0, place 4 (--spec counts"}},
		"seed and order": {stateAfter(t, specFile(t, root, "order: {shuffle: window, window: 3, seed: 8}\nbatch: {size: 2}\n"), 0, 2), true, 4, []string{
			"  order.shuffle: \"full\" in A, \"window\" in B\n  order.window: not set in A, 3 in B\n  seed: 9 in A, 8 in B\nnot the same stream\n",
		}},
		"dataset": {stateAfter(t, specFile(t, folder(t, 4), "order: {shuffle: full, seed: 9}\nbatch: {size: 2}\n"), 0, 2), false, 4, []string{"dataset (digest of names, sizes and labels): \""}},
	} {
		args := []string{"diff", a, writeJSON(t, filepath.Join(dir, "b.json"), c.other)}
		if c.spec {
			args = append(args, "--spec", path)
		}
		got := command(t, args...)
		if got.status != c.status {
			t.Errorf("%s: %+v", name, got)
		}
		for _, want := range c.want {
			if !strings.Contains(got.out, want) {
				t.Errorf("%s: no %q in\n%s", name, want, got.out)
			}
		}
		got = command(t, append(args, "--json")...)
		var r struct {
			Same   bool
			Stream bool `json:"same_stream"`
		}
		if err := json.Unmarshal([]byte(got.out), &r); err != nil || r.Same != (c.status == 0) || r.Stream != !strings.Contains(strings.Join(c.want, ""), "in B") && r.Stream != (name != "dataset") {
			t.Errorf("%s: %v, %+v", name, err, got)
		}
	}
	skipped := stateAfter(t, path, 0, 2)
	if err := json.Unmarshal([]byte("[[0, 0, 4]]"), &skipped.Skipped); err != nil {
		t.Fatal(err)
	}
	got := command(t, "diff", a, writeJSON(t, filepath.Join(dir, "b.json"), skipped))
	if got.status != 4 || !strings.Contains(got.out, "skipped steps: not set in A, [[0,0,4]] in B\nthe same stream") {
		t.Errorf("%+v", got)
	}
	other := specFile(t, folder(t, 4), "order: {shuffle: full, seed: 9}\n")
	got = command(t, "diff", a, writeJSON(t, filepath.Join(dir, "b.json"), stateAfter(t, path, 1, 1)), "--spec", other)
	if got.status != 2 || !strings.Contains(got.err, "the state does not fit: dataset is") {
		t.Errorf("a Spec of another dataset: %+v", got)
	}
}

func TestDiffLists(t *testing.T) {
	path := specFile(t, folder(t, 5), "order: {shuffle: full, seed: 9}\nbatch: {size: 2}\n")
	dir := t.TempDir()
	text := command(t, "order", path).out
	ids := strings.Fields(text)
	asList := "[" + strings.Join(ids, ", ") + "]"
	files := map[string]string{
		"text": text, "lines": command(t, "order", path, "--format", "json").out, "list": asList,
		"nested": "[[" + strings.Join(ids[:7], ",") + "],[" + strings.Join(ids[7:], ",") + "]]", "column": strings.Join(ids, "\n"),
		"padded": strings.TrimSpace(text) + " (3) (4)\n",
	}
	file := func(name, text string) string {
		p := filepath.Join(dir, name)
		write(t, p, []byte(text))
		return p
	}
	first := file("text", text)
	for name, text := range files {
		if got := command(t, "diff", first, file(name, text)); got.status != 0 || !strings.HasSuffix(got.out, "the same ids in the same order\n") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	swapped := strings.Join(append([]string{ids[1], ids[0]}, ids[2:]...), " ")
	twice := strings.Join(append([]string{ids[1]}, ids[1:]...), " ")
	for _, c := range []struct {
		text string
		want []string
	}{
		{swapped, []string{"sample 0 of the lists: " + ids[0] + " in A (line 1), " + ids[1] + " in B (line 1)", "the same ids in another order\n"}},
		{twice, []string{"1 that B does not have: " + ids[0] + "\n", "1 more than once: " + ids[1] + "\n", "not the same ids\n"}},
		{strings.Join(ids[:6], " "), []string{"B ends after 6 samples, and A continues with " + ids[6] + " (line 4)", "9 that B does not have: ", "and 1 more\n"}},
		{command(t, "order", path, "--epoch", "1").out, []string{"the same ids in another order"}},
	} {
		got := command(t, "diff", first, file("other", c.text))
		if got.status != 4 {
			t.Errorf("%+v", got)
		}
		for _, want := range c.want {
			if !strings.Contains(got.out, want) {
				t.Errorf("no %q in\n%s", want, got.out)
			}
		}
	}
	// Two ranks side by side are what one is.
	zero := strings.Fields(command(t, "order", path, "--world-size", "2").out)
	one := strings.Fields(command(t, "order", path, "--world-size", "2", "--rank", "1").out)
	var both []string
	for i := range zero {
		both = append(both, zero[i], one[i])
	}
	if got := command(t, "diff", first, file("both", strings.Join(both, " "))); got.status != 0 || !strings.Contains(got.out, "and 1 of padding, left out") {
		t.Errorf("%+v", got)
	}
}

func TestDiffReceipts(t *testing.T) {
	path := specFile(t, folder(t, 5), "order: {shuffle: full, seed: 9}\nbatch: {size: 2}\n")
	dir := t.TempDir()
	whole := receipts(t, path, 1)
	a := writeJSON(t, filepath.Join(dir, "a.json"), whole[0])
	// A run that was cut in the middle of an epoch received the same.
	l := openSpec(t, path, nil)
	for range 2 {
		for b, err := range l.Batches(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if b.Epoch == 0 && b.Step == 3 {
				break
			}
		}
		if st := l.State(); st.Epoch == 0 && st.Position < 15 {
			if err := l.Restore(st); err != nil {
				t.Fatal(err)
			}
			for _, err := range l.Batches(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for name, c := range map[string]struct {
		all    []stoker.Receipt
		status int
		want   string
	}{
		"the same":       {whole, 0, "the same samples were received\n"},
		"in two parts":   {[]stoker.Receipt{l.Receipt()}, 0, "the same samples were received\n"},
		"one id changed": {tampered(whole, func(p *stoker.ReceiptPart) { p.Sum.Less(4, 7); p.Sum.Add(4, 8) }), 4, "epoch 1, items 0 to 15, rank 0 of 1: as many samples in both, 15, but not the same ones"},
		"one less":       {tampered(whole, func(p *stoker.ReceiptPart) { p.Samples-- }), 4, "15 samples were received in A, 14 in B"},
		"cut off":        {tampered(whole, func(p *stoker.ReceiptPart) { p.To = 8 }), 4, "items 0 to 15, rank 0 of 1 in A, epoch 1, items 0 to 8, rank 0 of 1 in B"},
		"skipped":        {tampered(whole, func(p *stoker.ReceiptPart) { p.Skipped = [][2]int64{{3, 4}} }), 4, "0 and 0 in A, 1 and 0 in B"},
		"another seed":   {seeded(whole, 3), 4, "seed: 9 in A, 3 in B"},
	} {
		got := command(t, "diff", a, writeJSON(t, filepath.Join(dir, "b.json"), c.all))
		if got.status != c.status || !strings.Contains(got.out, c.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestDiffMistakes(t *testing.T) {
	dir := t.TempDir()
	state := `{"version": 1, "dataset": "d", "pipeline": "p", "seed": 0, "epoch": 0, "position": 4, "order": {"shuffle": "full"}}`
	good := filepath.Join(dir, "good.json")
	write(t, good, []byte(state))
	change := func(old, with string) string { return strings.Replace(state, old, with, 1) }
	for i, c := range []struct{ text, want string }{
		{"", "the file is empty"},
		{"PK\x03\x04archive", "this is a file of torch.save or pickle, and only JSON is read"},
		{"\x80\x04pickle", "this is a file of torch.save or pickle"},
		{state[:40], "the file is truncated"},
		{change(`"position": 4`, `"position": -4`), "the state is damaged: position is -4"},
		{change(`"position": 4`, `"position": "4"`), "the state is damaged: position is \"4\""},
		{change(`"position": 4`, `"position": null`), "the state is damaged: position is null"},
		{change(`"epoch": 0`, `"epoch": 0.5`), "the state is damaged: epoch is 0.5"},
		{change(`"epoch": 0, `, ``), "the state is damaged: it has no epoch"},
		{change(`"seed": 0`, `"seed": "x"`), "the state is damaged: "},
		{change(`{"shuffle": "full"}`, `"full"`), "the state is damaged: order is"},
		{`{"model": 1, "loader": ` + state + `}`, "it has the keys [\"loader\" \"model\"]"},
		{"1 2 three", `line 1: "three" is not an id`},
		{"1\n-2", `line 2: "-2" is not an id`},
		{"[1, -2]", "ids are not negative"},
		{"[1, \"a\"]", "not an id, a list of ids or a step"},
		{`{"ids": [1, 2], "valid": [true]}`, "step 0 is damaged: ids, valid and from differ in length"},
		{"1 2 3", "is a state and "},
	} {
		bad := filepath.Join(dir, fmt.Sprint(i))
		write(t, bad, []byte(c.text))
		got := command(t, "diff", good, bad)
		if got.status != 2 || got.out != "" || !strings.Contains(got.err, c.want) {
			t.Errorf("%q: %+v", c.text, got)
		}
	}
	if got := command(t, "diff", good, filepath.Join(dir, "god.json")); got.status != 2 || !strings.Contains(got.err, `did you mean "`+good+`"?`) {
		t.Errorf("%+v", got)
	}
	ids := filepath.Join(dir, "ids")
	write(t, ids, []byte("1 2"))
	if got := command(t, "diff", ids, ids, "--spec", folder(t, 1)); got.status != 2 || !strings.Contains(got.err, "these are not states") {
		t.Errorf("%+v", got)
	}
}

// What is compared, and receipts, may be in stores. Signatures of URLs are not shown.
func TestDiffOfStores(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.txt": "1 2 3", "b.txt": "1 2 4", "none.txt": "no ids"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root := folder(t, 5)
	specs := specFile(t, root, "batch: {size: 2}\n")
	l := openSpec(t, specs, nil)
	writeJSON(t, filepath.Join(dir, "receipt.json"), l.Receipt())
	s := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer s.Close()
	url := func(name string) string { return s.URL + "/" + name + "?X-Amz-Signature=HUSH" }
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"diff", url("a.txt"), filepath.Join(dir, "a.txt")}, 0, "the same"},
		{[]string{"diff", url("a.txt"), "file://" + dir + "/b.txt"}, 4, "the first difference"},
		{[]string{"diff", url("a.txt"), url("c.txt")}, 2, "c.txt"},
		{[]string{"diff", url("none.txt"), url("a.txt")}, 2, "is not an id"},
		{[]string{"diff", strings.Replace(url("a.txt"), "//", "/", 1), url("a.txt")}, 2, "two slashes"},
		{[]string{"order", specs, "--verify", url("receipt.json")}, 0, "nothing was received"},
	} {
		got := command(t, c.args...)
		if all := got.out + got.err; got.status != c.status || !strings.Contains(all, c.says) || strings.Contains(all, "HUSH") {
			t.Errorf("%q: %+v", c.args, got)
		}
	}
}
