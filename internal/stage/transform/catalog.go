package transform

import (
	"fmt"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/kernel"
)

// catalog lists the operations, by torchvision's names, and timm's.
func catalog() []descriptor {
	return []descriptor{
		describeAugMix(),
		describeAutoAugment(),
		describeCenterCrop(),
		describeColorJitter(),
		describeCompose(),
		describeConvertImageDtype(),
		describeGaussianBlur(),
		describeGrayscale(),
		describeIdentity(),
		describeNormalize(),
		describeLay("PILToTensor"),
		describePad(),
		describeRGB(),
		describeRandAugment(),
		describeRecolour("RandomAdjustSharpness", kernel.OpSharpness, "sharpness_factor", `{"sharpness_factor": 9}`),
		describeRandomAffine(),
		describeRandomApply(),
		describeRecolour("RandomAutocontrast", kernel.OpAutocontrast, "", `{}`),
		describeChannelPermutation(),
		describeRandomChoice(),
		describeRandomCrop(),
		describeRecolour("RandomEqualize", kernel.OpEqualize, "", `{}`),
		describeRandomErasing(),
		describeRandomGrayscale(),
		describeFlip("RandomHorizontalFlip"),
		describeRecolour("RandomInvert", kernel.OpInvert, "", `{}`),
		describeRandomPerspective(),
		describePhotometricDistort(),
		describeRecolour("RandomPosterize", kernel.OpPosterize, "bits", `{"bits": 3}`),
		describeRandomOrder(),
		describeRandomResize(),
		describeRandomResizedCrop(),
		describeRandomRotation(),
		describeRecolour("RandomSolarize", kernel.OpSolarize, "threshold", `{"threshold": 90}`),
		describeRandomShortestSize(),
		describeFlip("RandomVerticalFlip"),
		describeRandomZoomOut(),
		describeResize(),
		describeScaleJitter(),
		describeToDtype(),
		describeLay("ToImage"),
		describeToTensor(),
		describeTrivialAugment(),
		describeCropOrPad(), // timm's
		describeCropAndInterpolation(),
		describeKeepRatio(),
	}
}

func unknownOperation(all []descriptor, name string) *problem {
	if name == viewsOp {
		return problemf("put it at the end of the field's transform, and move what follows it into each view", "it must be the last of a field's transforms, and in no other")
	}
	if name == mixUp || name == cutMix {
		return problemf("write it as batch_transform, beside fields", "it is for batches, and not for the pictures of a field")
	}
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
	return problemf(hint+later, "operation %q is not implemented", name)
}

// later ends advice on what a Spec names that is not there.
const later = "; a later version of stoker may have more, and stoker version says which this is"

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
