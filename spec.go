package stoker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/jsontext"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// The parts of a Spec. The zero value of every key is its default; the keys in
// files, the flags of the command and the keywords of the Python package are
// the same words.
type (
	// Spec is everything that decides what a Loader delivers, and how.
	Spec = spec.Spec
	// Dataset says where samples are stored: Path (folders, shards, globs, braces)
	// and Format (detected if it is empty).
	Dataset = spec.Dataset
	// Paths is one or more paths.
	Paths = spec.Paths
	// Field is one named value of a sample: which stored value it comes From, how
	// to Decode it (rgb, gray, bytes, text, int, float, json, array, npy), and the
	// Transform of a picture. Floats have the Layout nchw or nhwc, bytes are always
	// NHWC. Arrays become a DType; in a Batch they are dense, padded (by Pad) or
	// ragged. A View delivers a part of a dense array.
	Field = spec.Field
	// Pad is how a batch of Field.Batch "padded" makes samples equal in length: To a
	// length (0: the longest), rounded up to a Multiple, with a Value.
	Pad = spec.Pad
	// View is the part of the first axis of an array that a field delivers, like a
	// slice in Python: View{To: new(-1)} is all but the last.
	View = spec.View
	// Op is one transform; see Transform.
	Op = transform.Op
	// Order decides which sample comes when: Shuffle and its settings, Seed, Tail,
	// and weighted draws.
	Order = spec.Order
	// Mix is how the datasets of Dataset.Mixed become one stream.
	Mix = spec.Mix
	// MixStage is the weights of a Mix from a place on.
	MixStage = spec.Stage
	// BatchSpec decides how many samples come at once, per rank or over all ranks,
	// and how lengths matter: Bucket, Tokens, Pack.
	BatchSpec = spec.Batch
	// Numbers is one number per sample: a List, or the File of a .npy array.
	Numbers = spec.Numbers
	// Lengths is Numbers, or the name of the stored Field whose bytes count.
	Lengths = spec.Lengths
	// Storage says how the store of a Dataset is reached. It holds no keys and no tokens:
	// they come from the environment, as the store's own tools take them.
	Storage = source.Storage
	// Fetch says how much is asked of a store at once, and for how long.
	Fetch = spec.Fetch
	// Deliver decides how many batches are ready ahead (Prefetch), and the Memory
	// that batches may use.
	Deliver = spec.Deliver
	// OnBad decides what happens to a sample that cannot be delivered: Policy is
	// fail, skip or replace.
	OnBad = spec.OnBad
	// Entries is whether entry points of JPEGs are kept: "auto", "off", or {"limit": bytes}.
	Entries = spec.Entries
	// Bytes is an amount of memory; as text "8GiB", "500MB" or "auto".
	Bytes = spec.Bytes
)

// Values of Order.Shuffle and Order.Tail.
const (
	ShuffleNone   = order.None        // place p has sample p
	ShuffleFull   = order.Full        // a keyed permutation of all samples, different in each epoch
	ShuffleBlock  = order.BlockWise   // blocks are permuted, read concurrently, and shuffled within windows
	ShuffleWindow = order.WindowAlone // windows of Order.Window samples, each permuted

	TailPad  = order.Pad  // the last batches of all ranks are equally short (the default)
	TailFill = order.Fill // every batch is full; rows that fill it up are not valid
	TailDrop = order.Drop // the epoch ends before the first batch that is not full
)

// Values of Mix.Stop.
const (
	FirstExhausted = order.FirstExhausted // before any dataset would begin again
	AllExhausted   = order.AllExhausted   // when all have been delivered completely
	Repeat         = order.Repeat         // after Order.NumSamples places
)

// Values of BatchSpec.Long.
const (
	LongSplit    = order.Split    // into pieces, each in a row
	LongTruncate = order.Truncate // the first Pack tokens
	LongRefuse   = order.Refuse   // Open fails
)

// Values of OnBad.Policy.
const (
	Fail    = spec.Fail
	Skip    = spec.Skip
	Replace = spec.Replace
)

// Args are the arguments of a Transform, by torchvision's names.
type Args map[string]any

// Transform is one operation by torchvision's name, arguments and defaults:
//
//	stoker.Transform("RandomResizedCrop", stoker.Args{"size": 224})
//
// Open reports unknown operations and wrong arguments, all at once.
func Transform(name string, args Args) Op {
	op := Op{Name: name, Args: map[string]json.RawMessage{}}
	for key, value := range args {
		raw, err := json.Marshal(value)
		if err != nil { // a function, a channel, NaN: Open reports what the argument should be
			raw, _ = json.Marshal(fmt.Sprintf("%v", value))
		}
		op.Args[key] = raw
	}
	return op
}

// ParseSpec reads a Spec written in YAML or JSON. For a key that does not exist the
// error names the nearest one that does; all such errors come at once.
func ParseSpec(text []byte) (Spec, error) {
	tree, err := parseTree(text)
	if err != nil {
		return Spec{}, err
	}
	if m, ok := tree.(map[string]any); ok && m["workers"] == "auto" {
		delete(m, "workers")
	}
	var c keyCheck
	c.walk(tree, reflect.TypeFor[Spec](), "")
	if err := c.err(); err != nil {
		return Spec{}, err
	}
	raw, err := json.Marshal(tree)
	if err != nil {
		return Spec{}, errs.New(errs.Config, "cannot read the Spec").Because(err)
	}
	return spec.Read(raw)
}

// parseTree returns the document as maps, lists, texts and numbers.
func parseTree(text []byte) (any, error) {
	var tree any
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errs.New(errs.Config, "the Spec is empty").Try("it needs at least dataset: {path: FOLDER}")
	}
	if !utf8.Valid(text) {
		return nil, errs.New(errs.Config, "the Spec is not UTF-8").Try("write it as UTF-8; for a path that is not UTF-8, make a link whose name is UTF-8")
	}
	if json.Valid(text) {
		if err := jsontext.Check(text); err != nil {
			return nil, errs.New(errs.Config, "the Spec contains text that is not Unicode").Because(err).Try("write the character itself, or both halves of its pair")
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber() // a seed may have 64 bits
		err := d.Decode(&tree)
		return tree, err
	}
	if err := yaml.Unmarshal(text, &tree); err != nil {
		line, _, _ := strings.Cut(yaml.FormatError(err, false, false), "\n")
		return nil, errs.New(errs.Config, "the Spec is neither YAML nor JSON: %s", line).
			Try("the brackets say line and column")
	}
	if replaced(text, tree) {
		return nil, errs.New(errs.Config, "the Spec contains text that is not Unicode: half a surrogate pair").Try("write the character itself, or both halves of its pair")
	}
	return tree, nil
}

// replaced reports whether the YAML reader has replaced something that is not
// Unicode by U+FFFD: it is in the tree but not in the text.
func replaced(text []byte, tree any) bool {
	if lower := bytes.ToLower(text); bytes.ContainsRune(text, utf8.RuneError) || bytes.Contains(lower, []byte(`\ufffd`)) || bytes.Contains(lower, []byte(`\u0000fffd`)) {
		return false
	}
	switch v := tree.(type) {
	case string:
		return strings.ContainsRune(v, utf8.RuneError)
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return replaced(nil, e) })
	case map[string]any:
		for key, e := range v {
			if replaced(nil, key) || replaced(nil, e) {
				return true
			}
		}
	}
	return false
}

// keyCheck collects keys that do not exist.
type keyCheck struct {
	paths    []string // of the dataset that is walked
	problems []string
	hints    []string
}

// walk compares the keys of a document with the type that it is read into.
func (c *keyCheck) walk(v any, t reflect.Type, at string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if list, ok := v.([]any); ok && t == reflect.TypeFor[Dataset]() {
		for i, item := range list {
			c.walk(item, t, fmt.Sprintf("%s[%d]", at, i))
		}
		return
	}
	if t != reflect.TypeFor[Dataset]() && reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return // its UnmarshalJSON checks it
	}
	switch t.Kind() {
	case reflect.Slice:
		list, _ := v.([]any)
		for i, item := range list {
			c.walk(item, t.Elem(), fmt.Sprintf("%s[%d]", at, i))
		}
	case reflect.Struct:
		m, ok := v.(map[string]any)
		if !ok {
			if v != nil && t == reflect.TypeFor[Storage]() { // it may be a secret
				c.problems = append(c.problems, named(at)+" must have keys, such as endpoint_url")
			} else if v != nil {
				c.problems = append(c.problems, fmt.Sprintf("%s must have keys, not %v", named(at), v))
			}
			return
		}
		if t == reflect.TypeFor[Dataset]() {
			c.paths = textsOf(m["path"])
		}
		types := fieldTypes(t)
		for _, key := range sortedKeys(m) {
			if inner, ok := types[key]; ok {
				c.walk(m[key], inner, join(at, key))
				continue
			}
			if t == reflect.TypeFor[Storage]() {
				if problem, hint := spec.SecretKey(at, key, c.paths); problem != "" {
					c.problems, c.hints = append(c.problems, problem), append(c.hints, hint)
					continue
				}
			}
			c.unknown(join(at, key), key, sortedKeys(types))
		}
	}
}

// textsOf are a text, or the texts of a list.
func textsOf(v any) (texts []string) {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, one := range list {
		if text, ok := one.(string); ok {
			texts = append(texts, text)
		}
	}
	return texts
}

// ofPython are what Python's loader and datasets take code by.
var ofPython = []string{"batch_sampler", "collate_fn", "collation_fn", "compose", "filter", "generator", "handler", "map", "map_dict", "map_tuple", "multiprocessing_context", "sampler", "target_transform", "worker_init_fn"}

func (c *keyCheck) unknown(path, key string, known []string) {
	c.problems = append(c.problems, fmt.Sprintf("unknown key %q", path))
	where := "a Spec"
	if path != key {
		where = path[:len(path)-len(key)-1]
	}
	hint := fmt.Sprintf("the keys of %s are %s", where, strings.Join(known, ", "))
	if slices.Contains(ofPython, key) {
		hint = fmt.Sprintf("%s is Python code, which a Spec cannot hold: use stoker.DataLoader or stoker.benchmark in Python", path)
	} else if near := errs.Nearest(key, known); near != "" {
		near = fmt.Sprintf("did you mean %q?", path[:len(path)-len(key)]+near)
		if where == "fetch" || strings.HasSuffix(where, "storage") { // few keys, that nobody knows by heart
			near += " T" + hint[1:]
		}
		hint = near
	}
	if !slices.Contains(c.hints, hint) {
		c.hints = append(c.hints, hint)
	}
}

func (c *keyCheck) err() error {
	if len(c.problems) == 0 {
		return nil
	}
	return errs.New(errs.Config, "the Spec has keys that do not exist: %s", strings.Join(c.problems, "; ")).
		Try("%s", strings.Join(c.hints, "\n       "))
}

func named(at string) string {
	if at == "" {
		return "the Spec"
	}
	return at
}

func join(at, key string) string {
	if at == "" {
		return key
	}
	return at + "." + key
}

// fieldTypes are the keys of a struct.
func fieldTypes(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" {
			out[name] = t.Field(i).Type
		}
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
