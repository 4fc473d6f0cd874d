package transform

import (
	"bytes"
	"encoding/json"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// Op is one operation as a Spec writes it: an object with "op", the name, and its
// arguments, by torchvision's names:
//
//	{"op": "RandomResizedCrop", "size": [224, 224], "scale": [0.08, 1]}
//
// Compose and containers, such as RandomApply, have others under "transforms". Reading an Op
// checks only this form; Compile checks names and arguments, all at once.
type Op struct {
	Name string
	Args map[string]json.RawMessage
}

// UnmarshalJSON reads the form above. A bare string is an operation without
// arguments.
func (o *Op) UnmarshalJSON(b []byte) error {
	var name string
	if json.Unmarshal(b, &name) == nil && name != "" {
		*o = Op{Name: name}
		return nil
	}
	var args map[string]json.RawMessage
	if err := json.Unmarshal(b, &args); err != nil || args == nil {
		return errs.New(errs.Config, "a transform is an object with the key \"op\", not %s", shown(b)).
			Try(`write {"op": "CenterCrop", "size": 224}`)
	}
	raw, there := args["op"]
	if !there {
		return errs.New(errs.Config, "a transform has no \"op\": %s", shown(b)).
			Try(`write {"op": "CenterCrop", "size": 224}`)
	}
	if err := json.Unmarshal(raw, &name); err != nil {
		return errs.New(errs.Config, "the \"op\" of a transform is its name, not %s", shown(raw))
	}
	delete(args, "op")
	*o = Op{Name: name, Args: args}
	return nil
}

// MarshalJSON writes the canonical form: keys sorted at every level, no spaces,
// numbers as they were written.
func (o Op) MarshalJSON() ([]byte, error) {
	all := make(map[string]any, len(o.Args)+1)
	for key, raw := range o.Args {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		var value any
		if err := d.Decode(&value); err != nil {
			return nil, errs.New(errs.Config, "argument %q of %s is not JSON", key, o.Name).Because(err)
		}
		all[key] = value // maps are written with sorted keys
	}
	all["op"] = o.Name
	return json.Marshal(all)
}

// shown is JSON as an error quotes it: on one line, shortened.
func shown(raw []byte) string {
	const most = 60
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		b.Reset()
		b.Write(raw)
	}
	if b.Len() > most {
		return string(bytes.ToValidUTF8(b.Bytes()[:most], nil)) + "..."
	}
	return b.String()
}
