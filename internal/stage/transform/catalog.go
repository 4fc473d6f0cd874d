package transform

import (
	"fmt"

	"github.com/stoker-data/stoker/internal/base/errs"
)

// catalog lists the operations, by torchvision's names.
func catalog() []descriptor {
	return []descriptor{
		describeCenterCrop(),
		describeCompose(),
		describeConvertImageDtype(),
		describeGrayscale(),
		describeIdentity(),
		describeNormalize(),
		describeLay("PILToTensor"),
		describePad(),
		describeRandomApply(),
		describeRandomCrop(),
		describeRandomGrayscale(),
		describeFlip("RandomHorizontalFlip"),
		describeRandomResizedCrop(),
		describeFlip("RandomVerticalFlip"),
		describeResize(),
		describeToDtype(),
		describeLay("ToImage"),
		describeToTensor(),
	}
}

func unknownOperation(all []descriptor, name string) *problem {
	var names []string
	for i := range all {
		names = append(names, all[i].name)
	}
	if near := errs.Nearest(name, names); near != "" {
		return problemf(fmt.Sprintf("did you mean %s?", near), "unknown operation %q", name)
	}
	hint := "the operations are"
	for i, n := range names {
		if i > 0 {
			hint += ","
		}
		hint += " " + n
	}
	return problemf(hint, "operation %q is not implemented", name)
}

// Wasted finds, among operations as they are written, one that gives the same
// result in every epoch and comes after a random one with which it could be
// swapped, so that no cache can keep its result; "" if there is none.
func Wasted(ops []Op) (first, later string) {
	all := catalog()
	for _, op := range ops {
		for i := range all {
			d := &all[i]
			switch {
			case d.name != op.Name:
			case d.draws && !d.slides:
				return "", "" // what follows depends on it
			case d.draws && first == "":
				first = d.name
			case d.cost == resamples && first != "":
				return first, d.name
			}
		}
	}
	return "", ""
}
