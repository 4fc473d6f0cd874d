package transform

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/rng"
)

// opsOf reads operations as a Spec writes them.
func opsOf(t testing.TB, text string) []Op {
	t.Helper()
	var ops []Op
	if err := json.Unmarshal([]byte(text), &ops); err != nil {
		t.Fatal(err)
	}
	return ops
}

func TestShapes(t *testing.T) {
	for _, c := range []struct {
		codec, ops, layout string
		shape              mem.Shape
		known              bool
		dtype              mem.DType
		stored, shown      string
	}{
		{"rgb", `[]`, "", nil, false, mem.Uint8, "hwc", "chw"},
		{"rgb", `[{"op":"CenterCrop","size":5}]`, "", mem.Shape{5, 5, 3}, true, mem.Uint8, "hwc", "chw"},
		{"gray", `[{"op":"CenterCrop","size":[5]}]`, "nhwc", mem.Shape{5, 5, 1}, true, mem.Uint8, "hwc", "hwc"},
		{"rgb", `[{"op":"CenterCrop","size":[4,5]},"ToTensor"]`, "", mem.Shape{3, 4, 5}, true, mem.Float32, "chw", "chw"},
		{"rgb", `[{"op":"CenterCrop","size":[4,5]},"ToTensor"]`, "nchw", mem.Shape{3, 4, 5}, true, mem.Float32, "chw", "chw"},
		{"rgb", `[{"op":"CenterCrop","size":[4,5]},"ToTensor"]`, "nhwc", mem.Shape{4, 5, 3}, true, mem.Float32, "hwc", "hwc"},
		{"rgb", `[{"op":"Resize","size":9}]`, "", nil, false, mem.Uint8, "hwc", "chw"},
		{"rgb", `[{"op":"RandomCrop","size":[8,4]},{"op":"Resize","size":6}]`, "", mem.Shape{12, 6, 3}, true, mem.Uint8, "hwc", "chw"},
		{"rgb", `[{"op":"Resize","size":[7,8]},{"op":"Pad","padding":[1,2]}]`, "", mem.Shape{11, 10, 3}, true, mem.Uint8, "hwc", "chw"},
		{"rgb", `[{"op":"RandomResizedCrop","size":6},"Grayscale"]`, "", mem.Shape{6, 6, 1}, true, mem.Uint8, "hwc", "chw"},
		{"gray", `[{"op":"RandomResizedCrop","size":6},{"op":"Grayscale","num_output_channels":3}]`, "", mem.Shape{6, 6, 3}, true, mem.Uint8, "hwc", "chw"},
		{"rgb", `[{"op":"Resize","size":[6,6]},{"op":"RandomApply","transforms":[{"op":"CenterCrop","size":5}]}]`, "", nil, false, mem.Uint8, "hwc", "chw"},
		{"rgb", `[{"op":"Resize","size":[6,6]},{"op":"RandomApply","transforms":[{"op":"RandomCrop","size":6,"padding":2}]}]`, "", mem.Shape{6, 6, 3}, true, mem.Uint8, "hwc", "chw"},
		{"int", `[]`, "nhwc", mem.Shape{}, true, mem.Int64, "", ""},
		{"float", `[]`, "", mem.Shape{}, true, mem.Float64, "", ""},
		{"bytes", `[]`, "", nil, false, mem.Object, "", ""},
		{"text", `[]`, "", nil, false, mem.Object, "", ""},
		{"json", `[]`, "", nil, false, mem.Object, "", ""},
	} {
		p := mustCompile(t, c.codec, opsOf(t, c.ops), c.layout)
		shape, known := p.Shape()
		stored, shown := p.Axes()
		if diff := cmp.Diff(c.shape, shape); diff != "" || known != c.known || p.DType() != c.dtype || stored != c.stored || shown != c.shown {
			t.Errorf("%s %s %q: %v %v %v %s %s", c.codec, c.ops, c.layout, shape, known, p.DType(), stored, shown)
		}
	}
	for codec, kind := range map[string]string{
		"rgb": "image", "gray": "image", "int": "number", "float": "number", "bytes": "bytes", "text": "text", "json": "json",
	} {
		if got := mustCompile(t, codec, nil, "").Kind(); got != kind {
			t.Errorf("%s is a %s", codec, got)
		}
	}
}

// TestRefused: every refusal says what is wrong, where, and what to write.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ codec, ops, want string }{
		{"rbg", `[]`, `unknown codec "rbg"|did you mean "rgb"?`},
		{"int", `["ToTensor"]`, `the codec of this field is int`},
		{"rgb", `["RandomResizeCrop"]`, `transform 1 of 1 (RandomResizeCrop): unknown operation|did you mean RandomResizedCrop?`},
		{"rgb", `["ElasticTransform"]`, `"ElasticTransform" is not implemented|the operations are AugMix, AutoAugment, CenterCrop, ColorJitter, Compose,`},
		{"rgb", `["ToTensor", "Resize"]`, `transform 2 of 2 (Resize): size is missing`},
		{"rgb", `[{"op":"CenterCrop","sise":3}]`, `size is missing|unknown argument "sise"|did you mean "size"?`},
		{"rgb", `[{"op":"ToTensor","size":3}]`, `unknown argument "size"|it has no arguments`},
		{"rgb", `[{"op":"CenterCrop","size":"3"}]`, `size must be a positive whole number, or [height, width], not "3"`},
		{"rgb", `[{"op":"CenterCrop","size":[1,2,3]}]`, `not [1,2,3]`},
		{"rgb", `[{"op":"CenterCrop","size":0}]`, `not 0`},
		{"rgb", `[{"op":"CenterCrop","size":2.5}]`, `not 2.5`},
		{"rgb", `[{"op":"CenterCrop","size":60000}]`, `60000 x 60000 pixels, more than the limit`},
		{"rgb", `[{"op":"CenterCrop","size":1e30}]`, `not 1e30`},
		{"rgb", `[{"op":"Resize","size":5,"interpolation":"lanczos"}]`, `interpolation cannot be "lanczos"|the choices are bilinear, nearest, bicubic, nearest-exact`},
		{"rgb", `[{"op":"Resize","size":5,"interpolation":"bicubic","antialias":false}]`, `bicubic is available with antialias=True only`},
		{"rgb", `[{"op":"Resize","size":5,"interpolation":"bilinaer"}]`, `did you mean "bilinear"?`},
		{"rgb", `[{"op":"Resize","size":5,"antialias":false}]`, `antialias=True only|leave antialias out`},
		{"rgb", `[{"op":"Resize","size":5,"interpolation":"nearest","draft":true}]`, `draft needs bilinear|leave draft out`},
		{"rgb", `[{"op":"Resize","size":5,"antialias":1}]`, `antialias must be true or false`},
		{"rgb", `[{"op":"Resize","size":[5,6],"max_size":9}]`, `no effect with`},
		{"rgb", `[{"op":"Resize","size":5,"max_size":5}]`, `max_size (5) must be greater than size (5)`},
		{"rgb", `[{"op":"RandomHorizontalFlip","p":1.5}]`, `p must be a number from 0 to 1`},
		{"rgb", `[{"op":"RandomHorizontalFlip","p":[0.1,0.2]}]`, `p must be a number from 0 to 1`},
		{"rgb", `[{"op":"RandomResizedCrop","size":5,"scale":[1,0.5]}]`, `scale must be two numbers, the smaller first`},
		{"rgb", `[{"op":"RandomResizedCrop","size":5,"ratio":[0,0.5]}]`, `ratio must be two numbers, the smaller first, both positive`},
		{"rgb", `[{"op":"RandomResizedCrop","size":5,"ratio":1}]`, `ratio must be two numbers`},
		{"rgb", `[{"op":"Pad","padding":[1,2,3]}]`, `padding must be 1, 2 or 4 whole numbers`},
		{"rgb", `[{"op":"Pad","padding":-1}]`, `not negative`},
		{"rgb", `[{"op":"Pad","padding":1,"padding_mode":"mirror"}]`, `padding_mode cannot be "mirror"|constant, edge, reflect, symmetric`},
		{"rgb", `[{"op":"Pad","padding":1,"fill":0.5}]`, `the fill is not a byte|whole number from 0 to 255`},
		{"rgb", `[{"op":"Pad","padding":1,"fill":[1,2,3],"padding_mode":"edge"}]`, `a fill of 3 channels needs padding_mode`},
		{"gray", `[{"op":"Pad","padding":1,"fill":[1,2,3]}]`, `the fill has 3 channels, but the picture has 1`},
		{"rgb", `[{"op":"Grayscale","num_output_channels":2}]`, `must be 1 or 3, not 2`},
		{"rgb", `[{"op":"ToDtype","dtype":"float64"}]`, `dtype cannot be "float64"|uint8, float32, float16 or bfloat16`},
		{"rgb", `[{"op":"ToDtype","dtype":"float16"},{"op":"ToDtype","dtype":"float32"}]`, `float16 cannot become float32|leave the conversion to float16 out`},
		{"rgb", `[{"op":"ToDtype","dtype":"bfloat16"},{"op":"ToDtype","dtype":"uint8"}]`, `bfloat16 cannot become uint8`},
		{"rgb", `[{"op":"ToDtype","dtype":"float16","scale":true},{"op":"Normalize","mean":0,"std":1e-9}]`, `mean 0 and std 1e-09 are 0 and 0 in float16|put the conversion to float16 after Normalize`},
		{"rgb", `[{"op":"ToDtype","dtype":"float16"},{"op":"Normalize","mean":1e6,"std":1}]`, `are +Inf and 1 in float16`},
		{"rgb", `[{"op":"ToDtype","dtype":"bfloat16"},"RandomErasing","RandomVerticalFlip"]`, `RandomVerticalFlip after RandomErasing of floats|move RandomErasing after RandomVerticalFlip`},
		{"rgb", `["ToTensor","RandomErasing",{"op":"ToDtype","dtype":"float16"},{"op":"ToDtype","dtype":"uint8"}]`, `float16 cannot become uint8`},
		{"rgb", `[{"op":"ToDtype","dtype":"bfloat16"},{"op":"Pad","padding":1,"fill":0.3}]`, `move Pad before ToDtype`},
		{"rgb", `["ToTensor",{"op":"RandomApply","transforms":[{"op":"ToDtype","dtype":"float16"}]}]`, `float32 or float16 at random|move it out of RandomApply`},
		{"rgb", `["ToDtype"]`, `dtype is missing`},
		{"rgb", `[{"op":"Normalize","mean":[0.5],"std":[1]}]`, `Normalize needs floats|put ToTensor()`},
		{"rgb", `["ToTensor",{"op":"Normalize","mean":0.5,"std":0}]`, `std must not be zero`},
		{"rgb", `["ToTensor",{"op":"Normalize","mean":0.5,"std":1e-46}]`, `std must not be zero in float32`},
		{"rgb", `["ToTensor",{"op":"Normalize","mean":[1,2],"std":1}]`, `mean must be a number, or one for each channel`},
		{"gray", `["ToTensor",{"op":"Normalize","mean":[1,2,3],"std":1}]`, `for 3 channels, but the picture has 1`},
		{"rgb", `["ToTensor",{"op":"Resize","size":5}]`, `Resize after ToTensor would give other numbers than torchvision|move Resize before ToTensor`},
		{"rgb", `[{"op":"ToDtype","dtype":"float32"},{"op":"RandomResizedCrop","size":5}]`, `move RandomResizedCrop before ToDtype`},
		{"rgb", `["ToTensor","Grayscale"]`, `move Grayscale before ToTensor`},
		{"rgb", `["ToTensor","RandomGrayscale"]`, `move RandomGrayscale before ToTensor`},
		{"rgb", `["ToTensor",{"op":"Normalize","mean":0.5,"std":1},{"op":"Pad","padding":1}]`, `move Pad before ToTensor`},
		{"rgb", `["ToTensor",{"op":"Normalize","mean":0.5,"std":1},{"op":"RandomCrop","size":5,"padding":1}]`, `move RandomCrop before ToTensor`},
		{"rgb", `[{"op":"Resize","size":[3,3]},"ToTensor",{"op":"Normalize","mean":0.485,"std":1},{"op":"CenterCrop","size":5}]`, `move CenterCrop before ToTensor`},
		{"rgb", `["PILToTensor","ToTensor"]`, `ToTensor does not change a tensor`},
		{"rgb", `["ToTensor",{"op":"ToDtype","dtype":"uint8"}]`, `float32 can become uint8 only if it came from uint8 with the same scale`},
		{"rgb", `[{"op":"Resize","size":[3,3]},{"op":"RandomCrop","size":5}]`, `a crop of 5 x 5 pixels does not fit into 3 x 3|pad_if_needed=True`},
		{"rgb", `[{"op":"RandomApply","transforms":["ToTensor"]}]`, `uint8 or float32 at random|move it out of RandomApply`},
		{"rgb", `[{"op":"RandomApply","transforms":["Grayscale"]}]`, `channels would be 3 or 1 at random|RandomGrayscale`},
		{"rgb", `["RandomApply"]`, `transforms is missing`},
		{"rgb", `["GaussianBlur"]`, `kernel_size is missing (a positive odd number`},
		{"rgb", `[{"op":"GaussianBlur","kernel_size":[3,4]}]`, `kernel_size must be a positive odd number, or two: of columns and of rows, not [3,4]`},
		{"rgb", `[{"op":"GaussianBlur","kernel_size":-1}]`, `not -1`},
		{"rgb", `[{"op":"GaussianBlur","kernel_size":3,"sigma":[2,1]}]`, `sigma must be a positive number, or two, the smaller first, not [2,1]`},
		{"rgb", `[{"op":"GaussianBlur","kernel_size":3,"sigma":0}]`, `not 0`},
		{"rgb", `[{"op":"CenterCrop","size":[8,20]},{"op":"GaussianBlur","kernel_size":[9,17]}]`, `GaussianBlur over 9 x 17 pixels needs pictures of at least 5 x 9, not 20 x 8|Resize before it`},
		{"rgb", `["ToTensor",{"op":"GaussianBlur","kernel_size":3}]`, `move GaussianBlur before ToTensor`},
		{"rgb", `[{"op":"RandomAdjustSharpness","sharpness_factor":-0.5}]`, `sharpness_factor must be a number from 0 to 1e30, not -0.5`},
		{"rgb", `["ToTensor",{"op":"RandomAdjustSharpness","sharpness_factor":2}]`, `move RandomAdjustSharpness before ToTensor`},
		{"rgb", `[{"op":"RandomErasing","value":"white"}]`, `value must be a number, one for each channel, or "random", not "white"`},
		{"rgb", `[{"op":"RandomErasing","value":[1,2]}]`, `not [1,2]`},
		{"rgb", `[{"op":"RandomErasing","value":"random"}]`, `draws normal numbers, about 0, but the picture is uint8|put ToDtype(float32, scale=True)`},
		{"rgb", `[{"op":"RandomErasing","value":256}]`, `the picture is uint8, and value 256 is not a byte`},
		{"rgb", `["ToTensor",{"op":"RandomErasing","value":1e39}]`, `value must be within float32`},
		{"gray", `[{"op":"RandomErasing","value":[1,2,3]}]`, `value is for 3 channels, but the picture has 1`},
		{"rgb", `[{"op":"RandomErasing","scale":[0.5,1.5]}]`, `scale must be two numbers from 0 to 1, not [0.5,1.5]`},
		{"rgb", `["ToTensor","RandomErasing",{"op":"CenterCrop","size":5}]`, `transform 3 of 3 (CenterCrop): CenterCrop after RandomErasing of floats|move RandomErasing after CenterCrop`},
		{"rgb", `["ToTensor",{"op":"RandomApply","transforms":["RandomErasing"]},{"op":"RandomApply","transforms":["RandomVerticalFlip"]}]`, `move RandomErasing after RandomVerticalFlip`},
		{"rgb", `["ToTensor",{"op":"RandomOrder","transforms":["RandomVerticalFlip",{"op":"RandomApply","transforms":["RandomErasing"]}]}]`, `move RandomErasing after RandomVerticalFlip`},
		{"rgb", `["ToTensor","RandomErasing",{"op":"ToDtype","dtype":"uint8","scale":true}]`, `float32 can become uint8 only if`},
		{"rgb", `[{"op":"ColorJitter","brightness":-1}]`, `brightness must be a number that is not negative`},
		{"rgb", `[{"op":"ColorJitter","brightness":1e31}]`, `the smaller first, at most 1e30, not 1e31`},
		{"rgb", `[{"op":"RandomPhotometricDistort","contrast":[0,1e31]}]`, `at most 1e30, not [0,1e31]`},
		{"rgb", `[{"op":"ColorJitter","contrast":[2,1]}]`, `contrast must be a number that is not negative, or two, the smaller first`},
		{"rgb", `[{"op":"ColorJitter","saturation":[-1,1]}]`, `saturation must be`},
		{"rgb", `[{"op":"ColorJitter","hue":0.6}]`, `hue must be a number from 0 to 0.5, or two from -0.5 to 0.5`},
		{"rgb", `[{"op":"ColorJitter","hue":[-0.6,0]}]`, `hue must be`},
		{"rgb", `["ToTensor",{"op":"ColorJitter","hue":0.1}]`, `move ColorJitter before ToTensor`},
		{"rgb", `[{"op":"RandomPhotometricDistort","contrast":[1]}]`, `contrast must be`},
		{"rgb", `["RandomPosterize"]`, `bits is missing (a whole number from 0 to 8)`},
		{"rgb", `[{"op":"RandAugment","num_ops":-1}]`, `num_ops must be a whole number from 0 to 30, not -1`},
		{"rgb", `[{"op":"RandAugment","magnitude":31}]`, `magnitude must be a whole number from -31 to 30, not 31`},
		{"rgb", `[{"op":"RandAugment","num_magnitude_bins":5}]`, `magnitude 9, the default, is not below num_magnitude_bins, 5`},
		{"rgb", `[{"op":"TrivialAugmentWide","num_magnitude_bins":1}]`, `num_magnitude_bins must be a whole number from 2 to 1048576, not 1`},
		{"rgb", `[{"op":"RandAugment","interpolation":"bicubic"}]`, `interpolation cannot be "bicubic"|the choices are bilinear, nearest`},
		{"rgb", `[{"op":"AutoAugment","policy":"cifar"}]`, `policy cannot be "cifar"|did you mean "cifar10"?`},
		{"rgb", `[{"op":"AutoAugment","fill":[1,2]}]`, `fill must be a number, or one for each channel`},
		{"rgb", `[{"op":"AugMix","severity":11}]`, `severity must be a whole number from 1 to 10, not 11`},
		{"rgb", `[{"op":"AugMix","mixture_width":0}]`, `mixture_width must be a whole number from 1 to 30, not 0`},
		{"rgb", `[{"op":"AugMix","alpha":0}]`, `alpha must be a positive number, not 0`},
		{"rgb", `[{"op":"AugMix","mixture_width":8}]`, `33 operations, 0 of which change the size: the limits are 30 and 15`},
		{"rgb", `[{"op":"RandAugment","num_ops":20},{"op":"RandAugment","num_ops":11}]`, `31 operations`},
		{"rgb", `["ToTensor","TrivialAugmentWide"]`, `move TrivialAugmentWide before ToTensor`},
		{"gray", `[{"op":"RandAugment","fill":[1,2,3]}]`, `the fill has 3 channels, but the picture has 1|give fill as one number`},
		{"rgb", `[{"op":"RandomPosterize","bits":9}]`, `bits must be a whole number from 0 to 8`},
		{"rgb", `[{"op":"RandomSolarize","threshold":256}]`, `threshold must be a number up to 255, not 256`},
		{"rgb", `["ToTensor","RandomEqualize"]`, `move RandomEqualize before ToTensor`},
		{"rgb", `["ToTensor","RandomChannelPermutation"]`, `move RandomChannelPermutation before ToTensor`},
		{"rgb", `["RandomRotation"]`, `degrees is missing (a number that is not negative, or two, the smaller first)`},
		{"rgb", `[{"op":"RandomRotation","degrees":-1}]`, `degrees must be a number that is not negative, or two, the smaller first, not -1`},
		{"rgb", `[{"op":"RandomRotation","degrees":[1,2,3]}]`, `degrees must be`},
		{"rgb", `[{"op":"RandomRotation","degrees":[2,1]}]`, `degrees must be`},
		{"rgb", `[{"op":"RandomRotation","degrees":1,"center":3}]`, `center must be two numbers, x and y, not 3`},
		{"rgb", `[{"op":"RandomRotation","degrees":1,"center":[3]}]`, `center must be two numbers`},
		{"rgb", `[{"op":"RandomRotation","degrees":1,"fill":256}]`, `the fill 256 is not a byte|from 0 to 255`},
		{"rgb", `[{"op":"RandomRotation","degrees":1,"fill":[1,2]}]`, `fill must be`},
		{"gray", `[{"op":"RandomRotation","degrees":1,"fill":[1,2,3]}]`, `the fill has 3 channels, but the picture has 1|give fill as one number`},
		{"rgb", `[{"op":"RandomRotation","degrees":1,"interpolation":"bicubic"}]`, `interpolation cannot be "bicubic"|the choices are bilinear, nearest`},
		{"rgb", `["ToTensor",{"op":"RandomRotation","degrees":1}]`, `move RandomRotation before ToTensor`},
		{"rgb", `[{"op":"RandomAffine","degrees":0,"translate":[0.1,1.1]}]`, `translate must be two numbers from 0 to 1, not [0.1,1.1]`},
		{"rgb", `[{"op":"RandomAffine","degrees":0,"translate":0.1}]`, `translate must be two numbers from 0 to 1`},
		{"rgb", `[{"op":"RandomAffine","degrees":0,"scale":[0,1]}]`, `scale must be two numbers, the smaller first, both positive`},
		{"rgb", `[{"op":"RandomAffine","degrees":0,"shear":[1,2,3]}]`, `shear must be a number that is not negative, or two or four`},
		{"rgb", `[{"op":"RandomAffine","degrees":0,"shear":[1,2,4,3]}]`, `shear must be`},
		{"rgb", `[{"op":"RandomPerspective","distortion_scale":1.5}]`, `distortion_scale must be a number from 0 to 1, not 1.5`},
		{"rgb", `[{"op":"RandomPerspective","p":2}]`, `p must be a number from 0 to 1`},
		{"rgb", `[{"op":"Compose","transforms":3}]`, `transforms must be a list, not 3`},
		{"rgb", `[{"op":"Compose","transforms":[3]}]`, `a transform is an object with the key "op", not 3`},
		{
			"rgb", `["Identity",{"op":"Compose","transforms":["Identity",{"op":"RandomApply","transforms":["Croop"]}]}]`,
			`transform 1 of 1 in transform 2 of 2 in transform 2 of 2 (Compose) (RandomApply) (Croop)`,
		},
		{"rgb", `[` + strings.Repeat(`{"op":"Resize","size":5},`, 15) + `{"op":"Resize","size":6}]`, `16 operations, 16 of which change the size: the limits are 30 and 15`},
	} {
		_, err := Compile(c.codec, opsOf(t, c.ops), "")
		if err == nil {
			t.Errorf("%s %s is accepted", c.codec, c.ops)
			continue
		}
		e := errs.From(err)
		all := e.What + " | " + e.Hint
		for _, want := range strings.Split(c.want, "|") {
			if !strings.Contains(all, want) {
				t.Errorf("%s %s:\n  %s\nis without\n  %s", c.codec, c.ops, all, want)
			}
		}
		if e.Code != errs.Config {
			t.Errorf("%s %s: code %s", c.codec, c.ops, e.Code)
		}
	}
	if _, err := Compile("rgb", nil, "nwhc"); err == nil || !strings.Contains(err.Error(), `unknown layout "nwhc"`) {
		t.Errorf("layout: %v", err)
	}
}

// TestLongestPrograms: the kernel can do every program that is not refused.
func TestLongestPrograms(t *testing.T) {
	lane := NewLane()
	defer lane.Close()
	for op, most := range map[string]int{
		`{"op":"RandomPhotometricDistort","p":1}`:                                         mostOps,
		`{"op":"ColorJitter","brightness":0.5,"contrast":0.5,"hue":0.1}`:                  mostOps,
		`{"op":"RandomErasing","p":1},{"op":"GaussianBlur","kernel_size":3}`:              mostOps / 2,
		`{"op":"RandomErasing","p":1},{"op":"ColorJitter","contrast":0.5}`:                mostOps / 2,
		`{"op":"RandomZoomOut","p":1,"side_range":[1,1.1]},{"op":"CenterCrop","size":50}`: 7,
	} {
		p := mustCompile(t, "rgb", opsOf(t, "["+strings.Repeat(op+",", most-1)+op+"]"), "")
		if _, _, err := tried(p, lane, readSource(t, "wide.png"), rng.Sample(1, 0, 1)); err != nil {
			t.Errorf("%d times %s: %v", most, op, err)
		}
	}
}

func TestDepthIsBounded(t *testing.T) {
	nested := func(depth int) string {
		return strings.Repeat(`[{"op":"Compose","transforms":`, depth) + `["RandomVerticalFlip"]` + strings.Repeat(`}]`, depth)
	}
	mustCompile(t, "rgb", opsOf(t, nested(mostDepth)), "")
	if _, err := Compile("rgb", opsOf(t, nested(3000)), ""); err == nil || !strings.Contains(err.Error(), "more than 32 deep") {
		t.Errorf("%v", err)
	}
}

func TestEveryProblemIsNamedAtOnce(t *testing.T) {
	_, err := Compile("rgbb", opsOf(t, `[{"op":"Resise","size":3},{"op":"CenterCrop","size":"x","p":1},"ToTensor","Grayscale"]`), "hcw")
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"5 problems", `unknown codec "rgbb"`, `unknown layout "hcw"`, "transform 1 of 4 (Resise)",
		"transform 2 of 4 (CenterCrop): unknown argument", "transform 2 of 4 (CenterCrop): size must be",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nis without %s", err, want)
		}
	}
	// What follows an operation that could not be read is not judged by guesses.
	if strings.Contains(err.Error(), "transform 4") {
		t.Errorf("%v", err)
	}
}

func TestOpReadsAndWrites(t *testing.T) {
	var op Op
	text := `{"size": [ 3, 4 ], "op": "Compose", "transforms": [{"z": 1.50, "op": "X", "a": null}]}`
	if err := json.Unmarshal([]byte(text), &op); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(op)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"op":"Compose","size":[3,4],"transforms":[{"a":null,"op":"X","z":1.50}]}`
	if string(b) != want {
		t.Errorf("%s", b)
	}
	for _, text := range []string{`3`, `null`, `{"size":3}`, `{"op":3}`, `[]`} {
		if err := json.Unmarshal([]byte(text), &op); errs.CodeOf(err) != errs.Config {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestDigests: one for all ways of writing the same, another for anything else.
func TestDigests(t *testing.T) {
	digest := func(ops string) string { return mustCompile(t, "rgb", opsOf(t, ops), "").Digest() }
	for _, same := range [][2]string{
		{`[{"op":"Resize","size":[8,9]},"ToTensor"]`, `[{"op":"Compose","transforms":[{"op":"Resize","size":[8,9],"antialias":true,"interpolation":"bilinear"},"Identity",{"op":"ToDtype","dtype":"float32","scale":true}]}]`},
		{`["RandomHorizontalFlip"]`, `[{"op":"RandomHorizontalFlip","p":0.50},"ToImage"]`},
		{`[{"op":"Resize","size":5}]`, `[{"op":"Resize","size":5,"draft":false}]`},
		{`[{"op":"Pad","padding":2}]`, `[{"op":"Pad","padding":[2,2,2,2],"fill":[0,0,0]}]`},
		{`[{"op":"CenterCrop","size":7}]`, `[{"op":"CenterCrop","size":[7,7]},{"op":"CenterCrop","size":[7]},{"op":"Resize","size":7}]`},
		{`["ToTensor",{"op":"Normalize","mean":0.5,"std":2}]`, `["ToTensor","ToTensor",{"op":"Normalize","mean":[0.5,0.5,0.5],"std":[2],"inplace":true}]`},
	} {
		if digest(same[0]) != digest(same[1]) {
			t.Errorf("%s\n%s\nhave two digests", same[0], same[1])
		}
	}
	seen := map[string]string{}
	for _, ops := range []string{
		`[]`, `["ToTensor"]`, `[{"op":"ToDtype","dtype":"float32"}]`, `["RandomHorizontalFlip"]`, `["RandomVerticalFlip"]`,
		`[{"op":"RandomHorizontalFlip","p":0.4}]`, `["RandomHorizontalFlip","RandomHorizontalFlip"]`, `["Grayscale"]`,
		`[{"op":"Grayscale","num_output_channels":3}]`, `["RandomGrayscale"]`, `[{"op":"Resize","size":5}]`,
		`[{"op":"Resize","size":5,"draft":true}]`, `[{"op":"RandomResizedCrop","size":5,"draft":true}]`,
		`[{"op":"Resize","size":5,"max_size":9}]`, `[{"op":"Resize","size":[5,5]}]`, `[{"op":"Resize","size":5,"interpolation":"nearest"}]`,
		`[{"op":"CenterCrop","size":5}]`, `[{"op":"RandomCrop","size":5}]`, `[{"op":"RandomCrop","size":5,"padding":1}]`,
		`[{"op":"RandomCrop","size":5,"pad_if_needed":true}]`, `[{"op":"RandomResizedCrop","size":5}]`,
		`[{"op":"RandomResizedCrop","size":5,"scale":[0.1,1]}]`, `[{"op":"Pad","padding":1}]`, `[{"op":"Pad","padding":1,"fill":2}]`,
		`[{"op":"Pad","padding":1,"padding_mode":"edge"}]`, `[{"op":"RandomApply","transforms":["RandomVerticalFlip"]}]`,
		`["ToTensor",{"op":"Normalize","mean":0.5,"std":2}]`, `["ToTensor",{"op":"Normalize","mean":0.5,"std":3}]`,
	} {
		d := digest(ops)
		if other, there := seen[d]; there {
			t.Errorf("%s and %s have one digest", ops, other)
		}
		seen[d] = ops
	}
	one, other := mustCompile(t, "rgb", nil, ""), mustCompile(t, "gray", nil, "")
	if one.Digest() == other.Digest() {
		t.Error("rgb and gray have one digest")
	}
	// Kept in saved states: it may not change.
	const kept = "1257ecba22f06f72fb3591344a111154"
	if got := digest(`[{"op":"RandomResizedCrop","size":224},"RandomHorizontalFlip","ToTensor",{"op":"Normalize","mean":[0.485,0.456,0.406],"std":[0.229,0.224,0.225]}]`); got != kept {
		t.Errorf("the digest of the usual transform is %s, was %s", got, kept)
	}
	const sharper = "87a8d2f873327b6dc732b344f38d635f"
	if got := digest(`["RandomInvert",{"op":"RandomAdjustSharpness","sharpness_factor":0,"p":0.25}]`); got != sharper {
		t.Errorf("the digest of RandomAdjustSharpness is %s, was %s", got, sharper)
	}
}

// TestAnyArguments: whatever a Spec writes, it is compiled or refused.
func TestAnyArguments(t *testing.T) {
	values := []string{
		`null`, `true`, `0`, `1`, `3`, `-1`, `0.5`, `1e300`, `""`, `"bilinear"`, `"nearest"`, `"edge"`, `"float32"`, `"uint8"`,
		`[]`, `[1]`, `[3,4]`, `[0.5,2]`, `[1,2,3]`, `[1,2,3,4]`, `{}`, `["Grayscale"]`, `[{"op":"Resize","size":4}]`,
	}
	rapid.Check(t, func(t *rapid.T) {
		var ops []Op
		for range rapid.IntRange(1, 4).Draw(t, "ops") {
			e := rapid.SampledFrom(catalog()).Draw(t, "op")
			op := Op{Name: e.name, Args: map[string]json.RawMessage{}}
			for _, name := range e.params {
				if rapid.Bool().Draw(t, "given") {
					op.Args[name] = json.RawMessage(rapid.SampledFrom(values).Draw(t, name))
				}
			}
			ops = append(ops, op)
		}
		codec := rapid.SampledFrom([]string{"rgb", "gray"}).Draw(t, "codec")
		p, err := Compile(codec, ops, "")
		if err != nil {
			if errs.CodeOf(err) != errs.Config {
				t.Fatal(err)
			}
			return
		}
		again, err := Compile(codec, ops, "")
		if err != nil || again.Digest() != p.Digest() {
			t.Fatalf("compiled again: %v", err)
		}
	})
}
