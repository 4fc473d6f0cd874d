package spec

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// Every value of the wrong type is named, with what was given and what is expected.
func TestReadSpecTeaches(t *testing.T) {
	for text, want := range map[string]string{
		`{"dataset": {"path": "x", "label": ["a"]}}`:          `dataset.label is ["a"]: it must be text`,
		`{"dataset": [{"path": "x"}, {"label": 3}]}`:          `dataset[1].label is 3: it must be text`,
		`{"dataset": {"path": 7}}`:                            `dataset.path is 7: it must be a path, or a list of paths`,
		`{"dataset": {"path": ["a", 7]}}`:                     `dataset.path is ["a",7]: it must be a path, or a list of paths`,
		`{"dataset": {"columns": ["a", {"name": 1}]}}`:        `dataset.columns[1].name is 1: it must be text`,
		`{"dataset": {"columns": [3]}}`:                       `dataset.columns[0] is 3: it must be a name, or an object with the keys name, from and path`,
		`{"dataset": {"window": {"eos": "x"}}}`:               `dataset.window.eos is "x": it must be a whole number`,
		`{"dataset": 3}`:                                      `dataset is 3: it must be an object such as {"path": "data/train"}, or a list of them`,
		`{"order": {"seed": -1}}`:                             `order.seed is -1: it must be a whole number from 0 to 2^64 - 1`,
		`{"order": {"seed": 18446744073709551616}}`:           `order.seed is 18446744073709551616: it must be a whole number from 0 to 2^64 - 1`,
		`{"order": {"seed": 1.5, "weights": {}}}`:             `2 things are wrong: order.seed is 1.5: it must be a whole number; order.weights is {}: it must be a list of numbers, or the path of a .npy file`,
		`{"order": {"block": 9223372036854775808}}`:           `order.block is 9223372036854775808: it must be a whole number from -2^63 to 2^63 - 1`,
		`{"order": {"replacement": 1}}`:                       `order.replacement is 1: it must be true or false`,
		`{"batch": {"lengths": true}}`:                        `batch.lengths is true: it must be a list of numbers, the path of a .npy file, or the name of a field`,
		`{"batch": []}`:                                       `batch is []: it must be an object with keys`,
		`{"fields": {}}`:                                      `fields is {}: it must be a list`,
		`{"fields": [{"view": 1}]}`:                           `fields[0].view is 1: it must be [from, to], with null for an open end`,
		`{"fields": [{"pad": {"to": "short"}}]}`:              `fields[0].pad.to is "short": it must be "longest", or a length of at least 1`,
		`{"fields": [{"transform": [{"op": 1}]}]}`:            `fields[0].transform[0]: the "op" of a transform is its name, not 1`,
		`{"on_bad": {"max_bad_rate": "` + long + `"}}`:        `on_bad.max_bad_rate is "` + long[:59] + `...: it must be a number`,
		`{"mix": {"schedule": [{"place": 0, "weights": 1}]}}`: `mix.schedule[0].weights is 1: it must be a list`,
		`[]`: `the Spec is []: it must be an object with keys`,
		`{`:  `cannot read the Spec: unexpected end of JSON input`,
	} {
		_, err := Read([]byte(text))
		if err == nil || err.Error() != want {
			t.Errorf("%s:\n %v\nwant\n %s", text, err, want)
		}
		if errs.CodeOf(err) != errs.Config {
			t.Errorf("%s: code %s", text, errs.CodeOf(err))
		}
	}
}

var long = strings.Repeat("x", 100)

// No error mentions Go, whatever the value of whatever key.
func TestReadSpecOfAnything(t *testing.T) {
	var keys [][]string
	var collect func(reflect.Type, []string)
	collect = func(rt reflect.Type, at []string) {
		for _, f := range reflect.VisibleFields(rt) {
			key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if key == "" || key == "-" || len(at) > 2 {
				continue
			}
			path := append(at[:len(at):len(at)], key)
			keys = append(keys, path)
			if f.Type.Kind() == reflect.Struct {
				collect(f.Type, path)
			}
		}
	}
	collect(reflect.TypeFor[Spec](), nil)
	values := []string{`"x"`, `[]`, `["x"]`, `{}`, `{"x": 1}`, `1`, `-1`, `1.5`, `1e300`, `18446744073709551616`, `true`, `[1, "x"]`, `[[]]`, `[{}]`, `[{"name": 1}]`}
	rapid.Check(t, func(t *rapid.T) {
		path, text := rapid.SampledFrom(keys).Draw(t, "key"), rapid.SampledFrom(values).Draw(t, "value")
		for i := len(path) - 1; i >= 0; i-- {
			text = `{"` + path[i] + `": ` + text + `}`
		}
		var plain Spec
		_, err := Read([]byte(text))
		if (err == nil) != (json.Unmarshal([]byte(text), &plain) == nil) {
			t.Fatalf("%s: %v", text, err)
		}
		if err == nil {
			return
		}
		for _, bad := range []string{"json:", "Go ", "unmarshal", "struct", "loader."} {
			if strings.Contains(err.Error(), bad) {
				t.Fatalf("%s: %s", text, err)
			}
		}
		if !strings.Contains(err.Error(), path[len(path)-1]) {
			t.Fatalf("%s: the key is not named: %s", text, err)
		}
	})
}
