package python_test

import (
	"testing"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/stage/format/python"
)

func TestSizes(t *testing.T) {
	d, err := python.New(3, "train.Pairs 3")
	if err != nil || d.Len() != 3 || d.Digest() != "train.Pairs 3" || d.Classes() != nil {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := python.New(-1, ""); errs.CodeOf(err) != errs.Config {
		t.Error(err)
	}
}
