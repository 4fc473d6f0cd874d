package format

import (
	"context"

	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/browse"
)

// Plan says how the index of a dataset is opened, or built if there is no current one.
// All formats go through Load, so that they agree on when an index is stale, where it
// is kept, and whether one beside the data is used.
type Plan struct {
	Format  string
	Options string   // of the format, in a canonical text: datasets with other options have another index
	Paths   []string // absolute

	Store    *index.Store   // where the index is kept; nil: index.DefaultStore()
	Progress index.Progress // may be nil

	// Valid says whether the columns of a stored index are sound, so that a damaged
	// index is built again.
	Valid func(x *index.Index) bool
	// Fresh says whether what was indexed is still there. nil: every file of Paths is one
	// file of the index, in order, with the size and version that it had. It is not asked
	// where the user believes indexes (browse.Believed).
	Fresh func(x *index.Index) bool
	// Build fills b; old is a sound index that is not fresh, or nil.
	Build func(ctx context.Context, old *index.Index, b *index.Builder) error
	// Beside is an index that may be stored with the data. nil: one beside Paths, if
	// Fresh is nil too.
	Beside func(ctx context.Context, src source.Source, key index.Key) index.Beside
}

// Load opens or builds the index of a plan.
func Load(ctx context.Context, src source.Source, p Plan) (*index.Index, error) {
	store := index.DefaultStore()
	if p.Store != nil {
		store = *p.Store
	}
	fresh, beside := p.Fresh, p.Beside
	if fresh == nil {
		fresh = func(x *index.Index) bool { return Fresh(ctx, src, p.Paths, x) }
		if beside == nil {
			beside = Beside
		}
	}
	plan := index.Plan{
		Key:      index.Key{Format: p.Format, Options: p.Options, Paths: p.Paths},
		Fresh:    func(x *index.Index) bool { return p.Valid(x) && (browse.Believed(src) || fresh(x)) },
		Build:    p.Build,
		Progress: p.Progress,
	}
	if beside != nil {
		plan.Beside = beside(ctx, src, plan.Key)
	}
	return store.Load(ctx, plan)
}
