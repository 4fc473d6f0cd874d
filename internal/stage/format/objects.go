package format

import (
	"context"

	"github.com/stoker-data/stoker/internal/stage/source"
)

// Tree is a Dataset whose files hold named objects, of which its fields are some.
type Tree interface {
	// Objects lists everything in the dataset's first file; the other files have the same.
	Objects(ctx context.Context, src source.Source) ([]Object, error)
}

// Object is a group, dataset or link of a file.
type Object struct {
	Path       string      `json:"path"` // from the file's root, which is "/"
	Kind       string      `json:"kind"` // group, dataset, link or type
	Type       string      `json:"type,omitempty"`
	Shape      []int64     `json:"shape,omitempty"` // none: one value
	Chunk      []int64     `json:"chunk,omitempty"` // none: in one piece
	Filters    []string    `json:"filters,omitempty"`
	Target     string      `json:"target,omitempty"` // of a link; of an object with several names, the first of them
	Unreadable string      `json:"unreadable,omitempty"`
	Attributes []Attribute `json:"attributes,omitempty"`
}

// Attribute is an attribute of an object. Value shows its first elements.
type Attribute struct {
	Name  string  `json:"name"`
	Type  string  `json:"type"`
	Shape []int64 `json:"shape,omitempty"`
	Value string  `json:"value,omitempty"`
}
