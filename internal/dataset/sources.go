package dataset

import "github.com/stoker-data/stoker/internal/stage/source"

// Sources are all schemes of names, each with its source.
func Sources() []source.Scheme {
	return []source.Scheme{
		source.Local(),
	}
}

// NewSource returns the source of names of all the schemes, reached as access says; nil:
// Sources().
func NewSource(schemes []source.Scheme, access source.Access) *source.Mux {
	if schemes == nil {
		schemes = Sources()
	}
	return source.NewMux(schemes, access)
}
