package dataset

import "github.com/stoker-data/stoker/internal/stage/source"

// Sources are the schemes of names that there are, each with its source.
func Sources() []source.Scheme {
	return []source.Scheme{
		source.Local(),
	}
}

// NewSource is the source of all names that the schemes have; nil: Sources().
func NewSource(schemes []source.Scheme) *source.Mux {
	if schemes == nil {
		schemes = Sources()
	}
	return source.NewMux(schemes)
}
