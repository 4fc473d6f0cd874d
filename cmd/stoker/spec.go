package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	stoker "github.com/stoker-data/stoker"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/order"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/stage/source/pattern"
)

// usualSpec is used for a dataset without a Spec.
func usualSpec() stoker.Spec {
	return stoker.Spec{Order: stoker.Order{Shuffle: order.Full}, Batch: stoker.BatchSpec{Size: 64}}
}

func readSpec(path string) (stoker.Spec, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return stoker.Spec{}, errs.New(errs.NotFound, "cannot read the Spec").Because(err).Try("%s", pattern.Suggest(context.Background(), source.NewFile(), path))
	}
	return stoker.ParseSpec(text)
}

// specEndings are the extensions of Spec files, whether or not the file exists.
var specEndings = []string{".yaml", ".yml", ".json"}

// specOf returns the Spec in a file, or the usual one over a dataset.
func specOf(path string) (stoker.Spec, error) {
	if slices.Contains(specEndings, strings.ToLower(filepath.Ext(path))) {
		return readSpec(path)
	}
	spec := usualSpec()
	spec.Dataset.Path = stoker.Paths{path}
	spec.Dataset = spec.Dataset.Hidden()
	return spec, nil
}
