package stoker_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	stoker "github.com/stoker-data/stoker"
)

func TestParseSpec(t *testing.T) {
	const asYAML = `
dataset:
  path: shards/{000..099}.tar   # one path, or a list
fields:
  - {name: image, from: jpg;png, decode: rgb, transform: [{op: RandomResizedCrop, size: [224, 224]}, RandomHorizontalFlip]}
  - {name: label, from: cls, decode: int}
order:   {shuffle: full, seed: 18446744073709551615}
batch:   {size: 256}
deliver: {prefetch: 4, memory: 2GiB}
workers: auto
on_bad:  {policy: skip, max_bad_rate: 0.01}
rank: 1
world_size: 2
`
	const asJSON = `{"dataset": {"path": ["shards/{000..099}.tar"]},
"fields": [{"name": "image", "from": "jpg;png", "decode": "rgb", "transform": [{"op": "RandomResizedCrop", "size": [224, 224]}, "RandomHorizontalFlip"]},
{"name": "label", "from": "cls", "decode": "int"}],
"order": {"shuffle": "full", "seed": 18446744073709551615}, "batch": {"size": 256}, "deliver": {"memory": 2147483648, "prefetch": 4},
"on_bad": {"policy": "skip", "max_bad_rate": 0.01}, "rank": 1, "world_size": 2}`
	want := stoker.Spec{
		Dataset: stoker.Dataset{Path: stoker.Paths{"shards/{000..099}.tar"}},
		Fields: []stoker.Field{
			{Name: "image", From: "jpg;png", Decode: "rgb", Transform: []stoker.Op{
				stoker.Transform("RandomResizedCrop", stoker.Args{"size": []int{224, 224}}), {Name: "RandomHorizontalFlip"},
			}},
			{Name: "label", From: "cls", Decode: "int"},
		},
		Order:   stoker.Order{Shuffle: stoker.ShuffleFull, Seed: 1<<64 - 1},
		Batch:   stoker.BatchSpec{Size: 256},
		Deliver: stoker.Deliver{Prefetch: 4, Memory: 2 << 30},
		OnBad:   stoker.OnBad{Policy: stoker.Skip, MaxBadRate: 0.01},
		Rank:    1,
		World:   2,
	}
	for _, text := range []string{asYAML, asJSON} {
		got, err := stoker.ParseSpec([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s\n%s", text, diff)
		}
	}
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := stoker.ParseSpec(raw); err != nil || !cmp.Equal(want, again, cmpopts.EquateEmpty()) {
		t.Fatalf("what is written cannot be read: %v\n%s", err, raw)
	}
}

func TestParseSpecTeaches(t *testing.T) {
	for _, c := range []struct{ text, what, hint string }{
		{"", "the Spec is empty", "it needs at least dataset: {path: FOLDER}"},
		{"batch: {sise: 4}", `the Spec has keys that do not exist: unknown key "batch.sise"`, `did you mean "batch.size"?`},
		{
			"dataste: {path: x}\nfields: [{name: a, transforms: []}]",
			`the Spec has keys that do not exist: unknown key "dataste"; unknown key "fields[0].transforms"`,
			"did you mean \"dataset\"?\n       did you mean \"fields[0].transform\"?",
		},
		{"dataset: {path: x, storage: {anonimous: true}}", `the Spec has keys that do not exist: unknown key "dataset.storage.anonimous"`, `did you mean "dataset.storage.anonymous"? The keys of dataset.storage are anonymous, endpoint_url, fresh, profile, region, requester_pays, token_env`},
		{"fetch: {bandwith: 1MB}", `the Spec has keys that do not exist: unknown key "fetch.bandwith"`, `did you mean "fetch.bandwidth"? The keys of fetch are ahead, bandwidth, connections, deadline, hedge`},
		{"dataset: {path: s3://b/x, storage: {token: x}}", `the Spec has keys that do not exist: dataset.storage.token is refused: a Spec is saved and shown, so it holds no keys, tokens or passwords`, `remove it, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (for temporary keys, AWS_SESSION_TOKEN too) where the program runs`},
		{"collate_fn: pad", `the Spec has keys that do not exist: unknown key "collate_fn"`, `collate_fn is Python code, which a Spec cannot hold: use stoker.DataLoader or stoker.benchmark in Python`},
		{"dataset: {path: x, map: f}", `the Spec has keys that do not exist: unknown key "dataset.map"`, `dataset.map is Python code, which a Spec cannot hold: use stoker.DataLoader or stoker.benchmark in Python`},
		{"deliver: {qqqqqq: 1}", `the Spec has keys that do not exist: unknown key "deliver.qqqqqq"`, `the keys of deliver are memory, prefetch, prefetch_factor`},
		{"deliver: {qqqqqq: 1, zzzzzz: 2}", `the Spec has keys that do not exist: unknown key "deliver.qqqqqq"; unknown key "deliver.zzzzzz"`, `the keys of deliver are memory, prefetch, prefetch_factor`},
		{"dataset: {path: \"d\xff\"}", "the Spec is not UTF-8", "write it as UTF-8; for a path that is not UTF-8, make a link whose name is UTF-8"},
		{`dataset: {path: ["d\udcff"]}`, "the Spec contains text that is not Unicode: half a surrogate pair", "write the character itself, or both halves of its pair"},
		{`{"dataset": {"path": "d\ud800"}}`, `the Spec contains text that is not Unicode: \ud800 is half a surrogate pair, at byte 23`, "write the character itself, or both halves of its pair"},
		{"batch: 64", "the Spec has keys that do not exist: batch must have keys, not 64", ""},
		{"batch: {size: many}", `batch.size is "many": it must be a whole number`, ""},
		{`{"batch": {"size": 1.5}}`, "batch.size is 1.5: it must be a whole number", ""},
		{"deliver: {memory: lots}", `deliver.memory is "lots": it must be "auto", a number of bytes, or an amount of memory such as "8GiB" or "500MB"`, ""},
		{"- a\n- b", "the Spec has keys that do not exist: the Spec must have keys, not [a b]", ""},
		{"a: [1", "the Spec is neither YAML nor JSON: [1:4] sequence end token ']' not found", "the brackets say line and column"},
		{"fields: [{name: image, transform: [{size: 3}]}]", `fields[0].transform[0]: a transform has no "op": {"size":3}`, `write {"op": "CenterCrop", "size": 224}`},
	} {
		_, err := stoker.ParseSpec([]byte(c.text))
		var e *stoker.Error
		if !errors.As(err, &e) {
			t.Errorf("%q: no Error: %v", c.text, err)
			continue
		}
		if e.Code != stoker.Config || e.Error() != c.what || e.Hint != c.hint {
			t.Errorf("%q:\n %s\n %s\nwant\n %s\n %s", c.text, e, e.Hint, c.what, c.hint)
		}
	}
}

func FuzzParseSpec(f *testing.F) {
	f.Add([]byte("batch: {size: 4}"))
	f.Add([]byte(`{"fields": [{"transform": ["x"]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		spec, err := stoker.ParseSpec(text)
		if err != nil {
			return
		}
		if _, err := json.Marshal(spec); err != nil {
			t.Fatal(err)
		}
	})
}
