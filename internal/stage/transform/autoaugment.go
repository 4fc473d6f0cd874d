package transform

// autoOne is an operation of AutoAugment: with which probability it acts, and by which of
// its magnitudes.
type autoOne struct {
	a   augmentation
	p   float64
	bin int
}

type autoPair [2]autoOne

var imagenetPairs = [25]autoPair{
	{{augPosterize, 0.4, 8}, {augRotate, 0.6, 9}},
	{{augSolarize, 0.6, 5}, {augAutoContrast, 0.6, 0}},
	{{augEqualize, 0.8, 0}, {augEqualize, 0.6, 0}},
	{{augPosterize, 0.6, 7}, {augPosterize, 0.6, 6}},
	{{augEqualize, 0.4, 0}, {augSolarize, 0.2, 4}},
	{{augEqualize, 0.4, 0}, {augRotate, 0.8, 8}},
	{{augSolarize, 0.6, 3}, {augEqualize, 0.6, 0}},
	{{augPosterize, 0.8, 5}, {augEqualize, 1, 0}},
	{{augRotate, 0.2, 3}, {augSolarize, 0.6, 8}},
	{{augEqualize, 0.6, 0}, {augPosterize, 0.4, 6}},
	{{augRotate, 0.8, 8}, {augColor, 0.4, 0}},
	{{augRotate, 0.4, 9}, {augEqualize, 0.6, 0}},
	{{augEqualize, 0, 0}, {augEqualize, 0.8, 0}},
	{{augInvert, 0.6, 0}, {augEqualize, 1, 0}},
	{{augColor, 0.6, 4}, {augContrast, 1, 8}},
	{{augRotate, 0.8, 8}, {augColor, 1, 2}},
	{{augColor, 0.8, 8}, {augSolarize, 0.8, 7}},
	{{augSharpness, 0.4, 7}, {augInvert, 0.6, 0}},
	{{augShearX, 0.6, 5}, {augEqualize, 1, 0}},
	{{augColor, 0.4, 0}, {augEqualize, 0.6, 0}},
	{{augEqualize, 0.4, 0}, {augSolarize, 0.2, 4}},
	{{augSolarize, 0.6, 5}, {augAutoContrast, 0.6, 0}},
	{{augInvert, 0.6, 0}, {augEqualize, 1, 0}},
	{{augColor, 0.6, 4}, {augContrast, 1, 8}},
	{{augEqualize, 0.8, 0}, {augEqualize, 0.6, 0}},
}

var cifar10Pairs = [25]autoPair{
	{{augInvert, 0.1, 0}, {augContrast, 0.2, 6}},
	{{augRotate, 0.7, 2}, {augTranslateX, 0.3, 9}},
	{{augSharpness, 0.8, 1}, {augSharpness, 0.9, 3}},
	{{augShearY, 0.5, 8}, {augTranslateY, 0.7, 9}},
	{{augAutoContrast, 0.5, 0}, {augEqualize, 0.9, 0}},
	{{augShearY, 0.2, 7}, {augPosterize, 0.3, 7}},
	{{augColor, 0.4, 3}, {augBrightness, 0.6, 7}},
	{{augSharpness, 0.3, 9}, {augBrightness, 0.7, 9}},
	{{augEqualize, 0.6, 0}, {augEqualize, 0.5, 0}},
	{{augContrast, 0.6, 7}, {augSharpness, 0.6, 5}},
	{{augColor, 0.7, 7}, {augTranslateX, 0.5, 8}},
	{{augEqualize, 0.3, 0}, {augAutoContrast, 0.4, 0}},
	{{augTranslateY, 0.4, 3}, {augSharpness, 0.2, 6}},
	{{augBrightness, 0.9, 6}, {augColor, 0.2, 8}},
	{{augSolarize, 0.5, 2}, {augInvert, 0, 0}},
	{{augEqualize, 0.2, 0}, {augAutoContrast, 0.6, 0}},
	{{augEqualize, 0.2, 0}, {augEqualize, 0.6, 0}},
	{{augColor, 0.9, 9}, {augEqualize, 0.6, 0}},
	{{augAutoContrast, 0.8, 0}, {augSolarize, 0.2, 8}},
	{{augBrightness, 0.1, 3}, {augColor, 0.7, 0}},
	{{augSolarize, 0.4, 5}, {augAutoContrast, 0.9, 0}},
	{{augTranslateY, 0.9, 9}, {augTranslateY, 0.7, 9}},
	{{augAutoContrast, 0.9, 0}, {augSolarize, 0.8, 3}},
	{{augEqualize, 0.8, 0}, {augInvert, 0.1, 0}},
	{{augTranslateY, 0.7, 9}, {augAutoContrast, 0.9, 0}},
}

var svhnPairs = [25]autoPair{
	{{augShearX, 0.9, 4}, {augInvert, 0.2, 0}},
	{{augShearY, 0.9, 8}, {augInvert, 0.7, 0}},
	{{augEqualize, 0.6, 0}, {augSolarize, 0.6, 6}},
	{{augInvert, 0.9, 0}, {augEqualize, 0.6, 0}},
	{{augEqualize, 0.6, 0}, {augRotate, 0.9, 3}},
	{{augShearX, 0.9, 4}, {augAutoContrast, 0.8, 0}},
	{{augShearY, 0.9, 8}, {augInvert, 0.4, 0}},
	{{augShearY, 0.9, 5}, {augSolarize, 0.2, 6}},
	{{augInvert, 0.9, 0}, {augAutoContrast, 0.8, 0}},
	{{augEqualize, 0.6, 0}, {augRotate, 0.9, 3}},
	{{augShearX, 0.9, 4}, {augSolarize, 0.3, 3}},
	{{augShearY, 0.8, 8}, {augInvert, 0.7, 0}},
	{{augEqualize, 0.9, 0}, {augTranslateY, 0.6, 6}},
	{{augInvert, 0.9, 0}, {augEqualize, 0.6, 0}},
	{{augContrast, 0.3, 3}, {augRotate, 0.8, 4}},
	{{augInvert, 0.8, 0}, {augTranslateY, 0, 2}},
	{{augShearY, 0.7, 6}, {augSolarize, 0.4, 8}},
	{{augInvert, 0.6, 0}, {augRotate, 0.8, 4}},
	{{augShearY, 0.3, 7}, {augTranslateX, 0.9, 3}},
	{{augShearX, 0.1, 6}, {augInvert, 0.6, 0}},
	{{augSolarize, 0.7, 2}, {augTranslateY, 0.6, 7}},
	{{augShearY, 0.8, 4}, {augInvert, 0.8, 0}},
	{{augShearX, 0.7, 9}, {augTranslateY, 0.8, 3}},
	{{augShearY, 0.8, 5}, {augAutoContrast, 0.7, 0}},
	{{augShearX, 0.7, 2}, {augInvert, 0.1, 0}},
}
