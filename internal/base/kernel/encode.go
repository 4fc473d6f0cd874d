package kernel

import "fmt"

// EncodeJPEG encodes p at a quality of 1 to 100. subsampling is "4:4:4", "4:2:2",
// "4:2:0", "4:4:0" or "4:1:1", and does not matter for one channel; restart is the
// restart interval in MCUs, 0 for none. Without libjpeg-turbo, only 4:2:0 without
// restarts is supported; anything else is an error.
func EncodeJPEG(p Pixels, quality int, subsampling string, restart int) ([]byte, error) {
	return encode(p, encodeOptions{quality: quality, subsampling: subsampling, restart: restart})
}

// EncodeOptimized is EncodeJPEG with Huffman tables made for the picture, a few percent
// smaller. Without libjpeg-turbo the tables are the usual ones.
func EncodeOptimized(p Pixels, quality int, subsampling string) ([]byte, error) {
	return encode(p, encodeOptions{quality: quality, subsampling: subsampling, optimize: HasLibjpeg})
}

// encodeOptions are the arguments of EncodeJPEG and, for tests, everything else that
// libjpeg can write.
type encodeOptions struct {
	quality     int
	subsampling string
	hs, vs      int // instead: the first component's sampling factors; the others' are 1
	restart     int
	progressive bool
	optimize    bool // Huffman tables made for the picture
	separate    bool // a scan for each component
	arithmetic  bool
	ycck, rgb   bool // color space of the file: of 4 channels, of 3
}

func (o *encodeOptions) check(p *Pixels) (hs, vs int, err error) {
	if p.C != 4 { // tests encode CMYK
		if err := checkSource(p); err != nil {
			return 0, 0, err
		}
	}
	if p.W > 65500 || p.H > 65500 {
		return 0, 0, JobError(fmt.Sprintf("a JPEG of %d x %d: its sides can have at most 65500 pixels", p.W, p.H))
	}
	if o.quality < 1 || o.quality > 100 {
		return 0, 0, JobError(fmt.Sprintf("quality %d is not between 1 and 100", o.quality))
	}
	if o.restart < 0 || o.restart > 65535 {
		return 0, 0, JobError(fmt.Sprintf("a restart interval of %d MCUs is not between 0 and 65535", o.restart))
	}
	if p.C == 1 {
		return 1, 1, nil
	}
	if o.hs > 0 {
		return o.hs, o.vs, nil
	}
	switch o.subsampling {
	case "4:4:4":
		return 1, 1, nil
	case "4:2:2":
		return 2, 1, nil
	case "4:2:0":
		return 2, 2, nil
	case "4:4:0":
		return 1, 2, nil
	case "4:1:1":
		return 4, 1, nil
	}
	return 0, 0, JobError(fmt.Sprintf("unknown subsampling %q: the choices are 4:4:4, 4:2:2, 4:2:0, 4:4:0 and 4:1:1", o.subsampling))
}
