package bench

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/loader"
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/transform"
)

// Chain is the processing of pictures if the Spec names no fields: the usual transforms
// of training, RandomResizedCrop and RandomHorizontalFlip.
type Chain struct {
	Size  int  // side of the result, pixels; 0: 224
	Float bool // normalised float32 instead of bytes
}

// ops are the transforms.
func (c Chain) ops() []transform.Op {
	size := c.Size
	if size == 0 {
		size = 224
	}
	ops := []transform.Op{
		{Name: "RandomResizedCrop", Args: map[string]json.RawMessage{"size": json.RawMessage(strconv.Itoa(size))}},
		{Name: "RandomHorizontalFlip"},
	}
	if c.Float {
		ops = append(ops, transform.Op{Name: "ToTensor"}, transform.Op{Name: "Normalize", Args: map[string]json.RawMessage{
			"mean": json.RawMessage("[0.485, 0.456, 0.406]"), "std": json.RawMessage("[0.229, 0.224, 0.225]"),
		}})
	}
	return ops
}

// Fields are one field of pictures and, if the dataset has labels, one of labels.
// Pictures of several kinds are one field.
func (c Chain) Fields(have []spec.Field) []spec.Field {
	var images []string
	var out, rest []spec.Field
	for _, f := range have {
		from := f.From
		if from == "" {
			from = f.Name
		}
		switch {
		case f.Decode == "rgb":
			images = append(images, from)
		case f.Decode == "int" && len(out) == 0:
			out = append(out, f)
		default:
			rest = append(rest, f)
		}
	}
	if len(images) == 0 {
		return append(out, rest...)
	}
	image := spec.Field{Name: "image", From: strings.Join(images, ";"), Decode: "rgb", Transform: c.ops()}
	return append([]spec.Field{image}, out...)
}

func errNoBatch(l *loader.Loader) error {
	s := l.Spec()
	return errs.New(errs.Config, "an epoch of %s has no batch of %d with tail %q", errs.Many(l.Len(), "sample"), s.Batch.Size, s.Order.Tail).
		Try("lower batch_size, or set tail to pad")
}
