// Package compare reports whether two saved things are of one stream: two states, two
// receipts, or two lists of ids; and if not, where they first differ.
package compare

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/dataset"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/pattern"
	"github.com/stoker-data/stoker/internal/stream"
	"github.com/stoker-data/stoker/internal/tool/orders"
)

// Kind is what a file holds.
type Kind string

// The kinds.
const (
	State   Kind = "state"
	Receipt Kind = "receipt"
	IDs     Kind = "list of ids"
)

// Thing is one of the two that are compared.
type Thing struct {
	Name string
	Kind Kind

	state    state
	receipts []stream.Receipt
	list     list
}

// mostBytes of a file in a store are read: a list of a hundred million ids.
const mostBytes = 1 << 30

// Read reads a file, local or in one of the stores (nil: all that there are), and detects
// its kind. What is local may be a pipe.
func Read(ctx context.Context, stores []source.Scheme, path string) (*Thing, error) {
	raw, err := read(ctx, stores, path)
	if err != nil {
		return nil, err
	}
	t := &Thing{Name: source.Shown(path)}
	if err := t.parse(raw); err != nil {
		e := *errs.From(err)
		e.Where.File = t.Name
		return nil, &e
	}
	return t, nil
}

func read(ctx context.Context, stores []source.Scheme, path string) ([]byte, error) {
	path = source.Bare(path)
	if source.SchemeOf(path) == "" {
		raw, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, errs.New(errs.NotFound, "there is no %q", source.Shown(path)).Try("%s", pattern.Suggest(ctx, source.NewFile(), path))
		}
		if err != nil {
			return nil, errs.New(errs.Unreadable, "cannot read %q", path).Because(err)
		}
		return raw, nil
	}
	d := spec.Dataset{Path: spec.Paths{path}}.Hidden()
	src, err := dataset.SourceOf(stores, spec.Spec{Dataset: d})
	if err != nil {
		return nil, err
	}
	defer src.Close()
	raw, err := source.ReadAll(ctx, src, source.Clean(d.Path[0]), mostBytes)
	if errs.CodeOf(err) == errs.NotFound {
		err = errs.From(err).Try("%s", pattern.Suggest(ctx, src, d.Path[0]))
	}
	return raw, err
}

// ReadReceipts reads a file of one receipt, or a list of them, as Read does.
func ReadReceipts(ctx context.Context, stores []source.Scheme, path string) ([]stream.Receipt, error) {
	t, err := Read(ctx, stores, path)
	if err != nil {
		return nil, err
	}
	if t.Kind != Receipt {
		return nil, errs.New(errs.Config, "this is a %s, not a receipt", t.Kind).At(errs.Where{File: t.Name}).
			Try("a receipt is what loader.receipt() returns, saved with json.dump")
	}
	return t.receipts, nil
}

func (t *Thing) parse(raw []byte) error {
	text := bytes.TrimSpace(raw)
	switch {
	case len(text) == 0:
		return errs.New(errs.Config, "the file is empty").Try("it should hold a state, a receipt, or ids as `stoker order` writes them")
	case bytes.HasPrefix(raw, []byte("PK\x03\x04")) || raw[0] == 0x80:
		return errs.New(errs.Config, "this is a file of torch.save or pickle, and only JSON is read").
			Try(`in Python: json.dump(torch.load(path, weights_only=True), open("state.json", "w")), with a checkpoint, only the part that is loader.state_dict()`)
	case text[0] != '{' && text[0] != '[':
		t.Kind = IDs
		return t.list.parseText(text)
	}
	values, err := parseValues(text)
	if err != nil {
		return err
	}
	var keys map[string]json.RawMessage
	if json.Unmarshal(values[0], &keys) == nil && len(values) == 1 {
		if _, ok := keys["position"]; ok && keys["ids"] == nil {
			t.Kind = State
			return t.state.parse(keys)
		}
	}
	if isReceipt(values[0]) {
		t.Kind = Receipt
		return t.parseReceipts(values)
	}
	t.Kind = IDs
	return t.list.parseValues(values)
}

// parseValues is the values that JSON or JSON lines hold.
func parseValues(text []byte) (values []json.RawMessage, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	for {
		var v json.RawMessage
		err := d.Decode(&v)
		if err == io.EOF { //nolint:errorlint // the end, not an error in the middle
			return values, nil
		}
		if err != nil {
			e := errs.New(errs.Config, "invalid JSON from value %d on: %s", len(values), err)
			if errors.Is(err, io.ErrUnexpectedEOF) {
				return nil, e.Try("the file is truncated: write it again")
			}
			return nil, e
		}
		values = append(values, v)
	}
}

// isReceipt reports whether a value, or the first of a list, is a receipt.
func isReceipt(v json.RawMessage) bool {
	var all []json.RawMessage
	if json.Unmarshal(v, &all) == nil && len(all) > 0 {
		v = all[0]
	}
	var keys map[string]json.RawMessage
	return json.Unmarshal(v, &keys) == nil && keys["parts"] != nil
}

func (t *Thing) parseReceipts(values []json.RawMessage) error {
	var each []json.RawMessage
	for _, v := range values {
		var all []json.RawMessage
		if json.Unmarshal(v, &all) != nil {
			all = []json.RawMessage{v}
		}
		each = append(each, all...)
	}
	for i, v := range each {
		var r stream.Receipt
		if !isReceipt(v) {
			return errs.New(errs.Config, "receipt %d of %d is not a receipt", i, len(each))
		}
		if err := json.Unmarshal(v, &r); err != nil {
			return errs.New(errs.Config, "receipt %d is damaged: %s", i, err).Try("save what loader.receipt() returns unchanged")
		}
		if r.Version != stream.ReceiptVersion {
			return errs.New(errs.Incompatible, "receipt %d has version %d, but this release reads %d", i, r.Version, stream.ReceiptVersion).
				Try("use the release of stoker that wrote it")
		}
		t.receipts = append(t.receipts, r)
	}
	return nil
}

// id is one delivered sample, or the run of it that begins at a token.
type id struct{ sample, from int64 }

func (i id) String() string {
	if i.from > 0 {
		return fmt.Sprintf("%d@%d", i.sample, i.from)
	}
	return strconv.FormatInt(i.sample, 10)
}

// list is ids in the order of delivery, padding left out.
type list struct {
	ids     []id
	padding int64
	ends    []int // of each line or step, in ids
}

func (l *list) add(sample, from int64, valid bool) {
	if valid {
		l.ids = append(l.ids, id{sample, from})
	} else {
		l.padding++
	}
}

// parseText reads what `stoker order` writes, or numbers with blanks or commas
// between them.
func (l *list) parseText(text []byte) error {
	n := 0
	for line := range bytes.Lines(text) {
		n++
		for word := range strings.FieldsFuncSeq(string(line), func(r rune) bool { return r == ' ' || r == ',' || r == '\t' || r == '\n' || r == '\r' }) {
			inner, padding := strings.CutPrefix(word, "(")
			inner, closed := strings.CutSuffix(inner, ")")
			sample, from, split := strings.Cut(inner, "@")
			s, err := strconv.ParseInt(sample, 10, 64)
			f := int64(0)
			if split && err == nil {
				f, err = strconv.ParseInt(from, 10, 64)
			}
			if err != nil || s < 0 || f < 0 || padding != closed {
				return errs.New(errs.Config, "line %d: %.40q is not an id", n, word).
					Try("a list of ids is what `stoker order` writes, JSON, or whole numbers separated by blanks")
			}
			l.add(s, f, !padding)
		}
		l.ends = append(l.ends, len(l.ids))
	}
	return nil
}

// parseValues reads ids from JSON: numbers, lists, lists of lists, or steps as
// `stoker order --format json` writes them.
func (l *list) parseValues(values []json.RawMessage) error {
	for i, v := range values {
		var one int64
		var flat []int64
		var deep []json.RawMessage
		switch {
		case json.Unmarshal(v, &one) == nil:
			l.add(one, 0, true)
		case json.Unmarshal(v, &flat) == nil:
			for _, n := range flat {
				l.add(n, 0, true)
			}
		case json.Unmarshal(v, &deep) == nil:
			if err := l.parseValues(deep); err != nil {
				return err
			}
			continue
		default:
			if err := l.parseStep(v, i); err != nil {
				return err
			}
		}
		l.ends = append(l.ends, len(l.ids))
	}
	if at := slices.IndexFunc(l.ids, func(i id) bool { return i.sample < 0 || i.from < 0 }); at >= 0 {
		return errs.New(errs.Config, "id %d is %v: ids are not negative", at, l.ids[at])
	}
	return nil
}

func (l *list) parseStep(v json.RawMessage, number int) error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(v, &keys); err != nil {
		return errs.New(errs.Config, "value %d is not an id, a list of ids or a step: %.60s", number, v)
	}
	if keys["ids"] == nil {
		names := make([]string, 0, len(keys))
		for k := range keys {
			names = append(names, k)
		}
		slices.Sort(names)
		return errs.New(errs.Config, "this is not a state, a receipt or a list of ids: it has the keys %.200q", names).
			Try("save the part of the checkpoint that is loader.state_dict() or loader.receipt() by itself")
	}
	var s orders.Step
	err := json.Unmarshal(v, &s)
	if err == nil && (s.Valid != nil && len(s.Valid) != len(s.IDs) || s.From != nil && len(s.From) != len(s.IDs)) {
		err = errors.New("ids, valid and from differ in length")
	}
	if err != nil {
		return errs.New(errs.Config, "step %d is damaged: %s", number, err).Try("save what `stoker order --format json` writes unchanged")
	}
	for i, sample := range s.IDs {
		from := int64(0)
		if s.From != nil {
			from = s.From[i]
		}
		l.add(sample, from, s.Valid == nil || s.Valid[i])
	}
	return nil
}
