package dataset

import (
	"github.com/stoker-data/stoker/internal/spec"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/azure"
	"github.com/stoker-data/stoker/internal/stage/source/gcs"
	"github.com/stoker-data/stoker/internal/stage/source/hub"
	"github.com/stoker-data/stoker/internal/stage/source/mux"
	"github.com/stoker-data/stoker/internal/stage/source/remote"
	"github.com/stoker-data/stoker/internal/stage/source/s3"
	"github.com/stoker-data/stoker/internal/stage/source/web"
)

// Sources are all schemes of names, each with its source. What is reached over a network
// shares the limits of net.
func Sources(net *remote.Net) []source.Scheme {
	return []source.Scheme{
		source.Local(),
		web.Scheme("http", net),
		web.Scheme("https", net),
		s3.Scheme(net),
		gcs.Scheme("gs", net),
		gcs.Scheme("gcs", net),
		azure.Scheme("az", net),
		azure.Scheme("azure", net),
		azure.Scheme("abfs", net),
		azure.Scheme("abfss", net),
		hub.Scheme(net),
	}
}

// SourceOf returns the source of the names of a Spec: each dataset is reached as its
// storage says. nil: Sources of a Net of its own.
func SourceOf(schemes []source.Scheme, s spec.Spec) (*mux.Mux, error) {
	if schemes == nil {
		schemes = Sources(remote.NewNet(remote.Options{}))
	}
	s.Dataset = s.Dataset.Hidden()
	return mux.Of(schemes, s.Places())
}
