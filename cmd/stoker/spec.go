package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	stoker "github.com/stoker-data/stoker"
	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// usualSpec is what a dataset alone is loaded with.
func usualSpec() stoker.Spec {
	return stoker.Spec{Order: stoker.Order{Shuffle: order.Full}, Batch: stoker.BatchSpec{Size: 64}}
}

func readSpec(path string) (stoker.Spec, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return stoker.Spec{}, errs.New(errs.NotFound, "cannot read the Spec").Because(err).Try("%s", source.Suggest(path))
	}
	return stoker.ParseSpec(text)
}

// specEndings are those of files that hold a Spec, whether they are there or not.
var specEndings = []string{".yaml", ".yml", ".json"}

// specOf is the Spec of a file, or the usual one over a dataset.
func specOf(path string) (stoker.Spec, error) {
	if slices.Contains(specEndings, strings.ToLower(filepath.Ext(path))) {
		return readSpec(path)
	}
	spec := usualSpec()
	spec.Dataset.Path = stoker.Paths{path}
	return spec, nil
}
