package loader

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// Spec is everything that decides what a loader delivers, and how. The zero
// value of every key is its documented default. The same keys stand in files,
// flags, Python keywords and saved states.
type Spec struct {
	Dataset Dataset   `json:"dataset"`
	Fields  []Field   `json:"fields,omitempty"` // in the order of delivery; none: the format's own
	Order   Order     `json:"order,omitzero"`
	Batch   BatchSpec `json:"batch,omitzero"`
	Deliver Deliver   `json:"deliver,omitzero"`
	Workers int       `json:"workers,omitempty"` // lanes; 0: all that this process may use
	OnBad   OnBad     `json:"on_bad,omitzero"`
	Rank    int       `json:"rank,omitempty"`
	World   int       `json:"world_size,omitempty"` // 0: 1
}

// Dataset says where samples lie.
type Dataset struct {
	Path       Paths    `json:"path,omitempty"`
	Format     string   `json:"format,omitempty"` // auto (""), folder, tar, synthetic
	Extensions []string `json:"extensions,omitempty"`
	AllowEmpty bool     `json:"allow_empty,omitempty"` // folder: classes without a sample
	Samples    int64    `json:"samples,omitempty"`     // synthetic
	Shape      []int    `json:"shape,omitempty"`       // synthetic: of one uint8 sample
}

// Paths is one path or a list of them; globs and braces are allowed.
type Paths []string

// UnmarshalJSON takes a string or a list.
func (p *Paths) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*p = Paths{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(p))
}

// Field is one named value of a sample, and what becomes of it.
type Field struct {
	Name      string         `json:"name"`
	From      string         `json:"from,omitempty"`   // stored name; "jpg;png" takes the first there is; "": Name
	Decode    string         `json:"decode,omitempty"` // rgb gray bytes text int float json; "": bytes
	Transform []transform.Op `json:"transform,omitempty"`
	Layout    string         `json:"layout,omitempty"` // of images: nchw (""), nhwc
}

// Order decides which sample comes when.
type Order struct {
	Shuffle order.Shuffle `json:"shuffle,omitempty"` // none (""), full
	Seed    uint64        `json:"seed,omitempty"`
	Tail    order.Tail    `json:"tail,omitempty"` // pad (""), fill, drop
}

// BatchSpec is how many samples come at once.
type BatchSpec struct {
	Size int `json:"size,omitempty"` // per rank; 0: 1
}

// Deliver is how far ahead, and within which memory.
type Deliver struct {
	Prefetch int `json:"prefetch,omitempty"` // batches ready ahead; 0: 4
	// PrefetchFactor is the same by the lane, as torch counts; 0: Prefetch holds.
	PrefetchFactor int   `json:"prefetch_factor,omitempty"`
	Memory         Bytes `json:"memory,omitempty"` // for batches; 0: a quarter of what is left
}

// OnBad is what happens to a sample that can not be delivered.
type OnBad struct {
	Policy     string  `json:"policy,omitempty"`       // fail (""), skip, replace
	MaxBad     int64   `json:"max_bad,omitempty"`      // a pass with more ends; 0: no limit
	MaxBadRate float64 `json:"max_bad_rate,omitempty"` // likewise, of the samples so far, from the first 100 on and at the end; 0: no limit
}

// The policies.
const (
	Fail    = "fail"
	Skip    = "skip"    // a good row of the batch stands there, valid = False
	Replace = "replace" // another sample, chosen by key, stands there
)

// Bytes is an amount of memory: a number, or text such as "8GiB" or "500MB".
// "auto" is 0.
type Bytes int64

var units = []struct {
	name string
	size float64
}{
	{"kib", 1 << 10},
	{"mib", 1 << 20},
	{"gib", 1 << 30},
	{"tib", 1 << 40},
	{"kb", 1e3},
	{"mb", 1e6},
	{"gb", 1e9},
	{"tb", 1e12},
	{"b", 1},
	{"", 1},
}

// ParseBytes reads an amount of memory.
func ParseBytes(text string) (Bytes, error) {
	s := strings.ToLower(strings.TrimSpace(text))
	if s == "auto" {
		return 0, nil
	}
	for _, u := range units {
		if number, ok := strings.CutSuffix(s, u.name); ok {
			if n, err := strconv.ParseFloat(strings.TrimSpace(number), 64); err == nil && n >= 0 && n*u.size < 1<<62 {
				return Bytes(n * u.size), nil
			}
		}
	}
	return 0, fmt.Errorf("%q is no amount of memory: write \"auto\", a number of bytes, or one like \"8GiB\" or \"500MB\"", text)
}

// UnmarshalJSON takes a number or text.
func (b *Bytes) UnmarshalJSON(raw []byte) error {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	n, err := ParseBytes(text)
	*b = n
	return err
}

// defaults is the Spec with every default written out.
func (s Spec) defaults() Spec {
	if s.World == 0 {
		s.World = 1
	}
	if s.Batch.Size == 0 {
		s.Batch.Size = 1
	}
	if s.Workers == 0 {
		s.Workers = Cores()
	}
	if s.Deliver.PrefetchFactor > 0 {
		s.Deliver.Prefetch = s.Deliver.PrefetchFactor * max(s.Workers, 1)
	}
	if s.Deliver.Prefetch == 0 {
		s.Deliver.Prefetch = 4
	}
	if s.Order.Shuffle == "" {
		s.Order.Shuffle = order.None
	}
	if s.Order.Tail == "" {
		s.Order.Tail = order.Pad
	}
	if s.OnBad.Policy == "" {
		s.OnBad.Policy = Fail
	}
	return s
}

// problems collects what is wrong, so that the user hears of all of it at once.
type problems []string

func (p *problems) addf(format string, a ...any) { *p = append(*p, fmt.Sprintf(format, a...)) }

// err is one error for all problems, or nil.
func (p problems) err() error {
	switch len(p) {
	case 0:
		return nil
	case 1:
		return errs.New(errs.Config, "%s", p[0])
	}
	return errs.New(errs.Config, "%d things are wrong: %s", len(p), strings.Join(p, "; "))
}

// check names every problem that can be seen without the dataset.
func (s Spec) check() (p problems) {
	oneOf := func(key, got string, want ...string) {
		for _, w := range want {
			if got == w {
				return
			}
		}
		p.addf("%s is %q: it can be %s", key, got, strings.Join(want, ", "))
	}
	oneOf("format", s.Dataset.Format, "", "auto", "folder", "tar", "synthetic")
	oneOf("shuffle", string(s.Order.Shuffle), string(order.None), string(order.Full))
	oneOf("tail", string(s.Order.Tail), string(order.Pad), string(order.Fill), string(order.Drop))
	oneOf("on_bad", s.OnBad.Policy, Fail, Skip, Replace)
	if s.Dataset.Format == "synthetic" {
		if s.Dataset.Samples <= 0 || len(s.Dataset.Shape) == 0 {
			p.addf("a synthetic dataset needs samples and a shape")
		}
	} else if len(s.Dataset.Path) == 0 {
		p.addf("dataset.path is missing")
	}
	if s.Batch.Size < 0 || s.Batch.Size > 1<<20 {
		p.addf("batch size is %d: it can be 1 to %d", s.Batch.Size, 1<<20)
	}
	if s.Deliver.Prefetch < 0 || s.Deliver.PrefetchFactor < 0 {
		p.addf("prefetch is %d batches, %d a lane", s.Deliver.Prefetch, s.Deliver.PrefetchFactor)
	}
	if s.Workers < 0 || s.Workers > maxLanes {
		p.addf("workers is %d: it can be 1 to %d lanes, or 0 for all", s.Workers, maxLanes)
	}
	if s.World < 1 || s.Rank < 0 || s.Rank >= s.World {
		p.addf("rank is %d in a world of %d: ranks go from 0 to world_size - 1", s.Rank, s.World)
	}
	if s.OnBad.MaxBad < 0 || s.OnBad.MaxBadRate < 0 || s.OnBad.MaxBadRate > 1 {
		p.addf("max_bad is %d and max_bad_rate %g: a count, and a share between 0 and 1", s.OnBad.MaxBad, s.OnBad.MaxBadRate)
	}
	names := map[string]bool{}
	for _, f := range s.Fields {
		if f.Name == "" || names[f.Name] {
			p.addf("fields need names of their own: %q", f.Name)
		}
		names[f.Name] = true
	}
	return p
}
