package tune

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// People edit playbooks by hand, so errors name the line, and use the words of
// playbooks. Nothing is converted silently, as the decoder would do with 2.5 for 2,
// and with an empty value for 0.

// form is what a playbook may have in one position.
type form struct {
	kind  kind
	least float64  // for numbers
	keys  []member // for a map
	of    *form    // for a list
}

type member struct {
	key   string
	value form
	may   bool // may be left out
}

type kind string

const (
	isText   kind = `a text in "quotes"`
	isWhole  kind = "a whole number"
	isNumber kind = "a number"
	isTruth  kind = "true or false"
	isPairs  kind = "lines of keys and values"
	isList   kind = "a list, each item on a line that begins with -"
)

func has(key string, value form) member { return member{key: key, value: value} }
func may(key string, value form) member { return member{key: key, value: value, may: true} }

// playbookForm is the form that Playbook.text writes.
func playbookForm() form {
	word, count, amount := form{kind: isText}, form{kind: isWhole}, form{kind: isNumber}
	one := form{kind: isWhole, least: 1}
	settings := form{kind: isPairs, keys: []member{
		has("num_workers", count), has("prefetch", count), has("pin_memory", form{kind: isTruth}), has("batch_size", one),
		may("decode_sixteenths", count),
	}}
	figures := form{kind: isPairs, keys: []member{
		may("samples_per_second", amount), may("batches_per_second", amount), may("cores_busy", amount), may("first_batch_s", amount),
		may("spread", amount),
	}}
	hardware := form{kind: isPairs, keys: []member{
		may("cpu", word), may("cores", count), may("usable_cores", amount), may("cgroup_cores", amount), may("memory_gib", count),
		may("gpus", form{kind: isList, of: &word}),
	}}
	entry := form{kind: isPairs, keys: []member{
		has("machine", word), has("dataset", word), may("name", word), may("samples", count), has("loader", word), may("decode_device", word), has("date", word),
		may("step_s", amount), has("settings", settings), may("figures", figures), may("hardware", hardware),
	}}
	return form{kind: isPairs, keys: []member{has("version", one), may("entries", form{kind: isList, of: &entry})}}
}

// tree is the YAML of a playbook with the right form.
func tree(written []byte) (ast.Node, error) {
	file, err := parser.ParseBytes(written, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, notYAML(err, written)
	}
	var body ast.Node
	for _, d := range file.Docs {
		if d.Body == nil || d.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			return nil, fmt.Errorf("%s a second document begins, but a playbook is a single one", lineOf(d.Body))
		}
		body = d.Body
	}
	if body == nil {
		return nil, errors.New("it is empty")
	}
	return body, playbookForm().check(body, "the file")
}

// notYAML says at which line a text stops being YAML.
func notYAML(err error, written []byte) error {
	var of yaml.Error
	if !errors.As(err, &of) || of.GetToken() == nil || of.GetToken().Position == nil {
		return errors.New("it is not YAML")
	}
	n := of.GetToken().Position.Line
	all := strings.Split(string(written), "\n")
	if n < 1 || n > len(all) {
		return errors.New("it is not YAML")
	}
	return fmt.Errorf("line %d is not YAML, or the line before it is incomplete: %s", n, short(all[n-1]))
}

// check returns what is wrong with a node; what is its name for errors.
func (f form) check(n ast.Node, what string) error {
	switch f.kind {
	case isPairs:
		return f.checkPairs(n, what)
	case isList:
		list, ok := n.(*ast.SequenceNode)
		if n.Type() == ast.NullType { // the list was emptied
			return nil
		}
		if !ok {
			return f.not(n, what)
		}
		for i, each := range list.Values {
			name := fmt.Sprintf("entry %d", i+1)
			if f.of.kind != isPairs {
				name = "one of " + what
			}
			if err := f.of.check(each, name); err != nil {
				return err
			}
		}
		return nil
	}
	switch v := n.(type) {
	case *ast.StringNode:
		if f.kind == isText {
			return nil
		}
		// 1e+09 is text for the parser, but a number for the decoder and for Go.
		if x, err := strconv.ParseFloat(v.Value, 64); f.kind == isNumber && err == nil && v.Token.Type == token.StringType {
			return f.checkLeast(n, what, x)
		}
	case *ast.LiteralNode:
		if f.kind == isText {
			return nil
		}
	case *ast.BoolNode:
		if f.kind == isTruth {
			return nil
		}
	case *ast.IntegerNode:
		if f.kind == isWhole && !tooLarge(v) || f.kind == isNumber {
			return f.checkLeast(n, what, asFloat(v.Value))
		}
	case *ast.FloatNode:
		if f.kind == isNumber {
			return f.checkLeast(n, what, v.Value)
		}
	}
	return f.not(n, what)
}

func (f form) checkPairs(n ast.Node, what string) error {
	var values []*ast.MappingValueNode
	switch v := n.(type) {
	case *ast.MappingNode:
		values = v.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{v}
	default:
		return f.not(n, what)
	}
	var seen []string
	for _, pair := range values {
		key := pair.Key.GetToken().Value
		i := slices.IndexFunc(f.keys, func(m member) bool { return m.key == key })
		if i < 0 {
			return fmt.Errorf("%s unknown key %s; there %s", lineOf(pair.Key), short(key), f.known(key))
		}
		if slices.Contains(seen, key) {
			return fmt.Errorf("%s duplicate key %s", lineOf(pair.Key), key)
		}
		seen = append(seen, key)
		if err := f.keys[i].value.check(pair.Value, key); err != nil {
			return err
		}
	}
	for _, m := range f.keys {
		if !m.may && !slices.Contains(seen, m.key) {
			return fmt.Errorf("%s %s has no %s", lineOf(n), what, m.key)
		}
	}
	return nil
}

// known are the possible keys, or the one that was probably meant.
func (f form) known(key string) string {
	var names []string
	for _, m := range f.keys {
		names = append(names, m.key)
	}
	if near := errs.Nearest(key, names); near != "" {
		return "is " + near
	}
	return "are " + strings.Join(names, ", ")
}

func (f form) checkLeast(n ast.Node, what string, x float64) error {
	if x < f.least || math.IsInf(x, 0) || math.IsNaN(x) {
		return f.not(n, what)
	}
	return nil
}

func (f form) not(n ast.Node, what string) error {
	should := string(f.kind)
	if f.kind == isWhole || f.kind == isNumber {
		should += fmt.Sprintf(" from %g on", f.least)
	}
	return fmt.Errorf("%s %s is %s; it should be %s", lineOf(n), what, shown(n), should)
}

// shown is a node for an error.
func shown(n ast.Node) string {
	switch v := n.(type) {
	case *ast.NullNode:
		return "empty"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "keys and values"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode:
		if v.Token.Type == token.DoubleQuoteType || v.Token.Type == token.SingleQuoteType {
			return fmt.Sprintf("the text %.40q", v.Value)
		}
		return short(v.Value)
	}
	return short(n.GetToken().Value)
}

// short is the beginning of a text from a file.
func short(s string) string {
	if r := []rune(strings.TrimSpace(s)); len(r) > 40 {
		return errs.Name(string(r[:40]) + "...")
	}
	return errs.Name(strings.TrimSpace(s))
}

func lineOf(n ast.Node) string {
	t := n.GetToken()
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
		t = m.Values[0].Key.GetToken()
	}
	if t == nil || t.Position == nil {
		return "somewhere"
	}
	return fmt.Sprintf("line %d:", t.Position.Line)
}

// tooLarge reports whether a whole number is larger than any setting.
func tooLarge(n *ast.IntegerNode) bool { return math.Abs(asFloat(n.Value)) > 1<<53 }

func asFloat(v any) float64 {
	switch x := v.(type) {
	case uint64:
		return float64(x)
	case int64:
		return float64(x)
	}
	return math.NaN()
}
