package decode

import "testing"

// Samples that are stored in planes are put together in a block beside the plane that is
// unpacked: one plane more than where they are stored together, and not less of anything.
func TestScratchOfTIFFPlanes(t *testing.T) {
	together := tiffInfo{w: 40, h: 30, blockW: 40, blockH: 30, samples: 3, planes: 1, bits: 8, orientation: 1}
	planes := together
	planes.planes = 3
	if more := planes.scratch(500) - together.scratch(500); more != 40*30 {
		t.Errorf("three planes of 1,200 bytes take %d bytes more", more)
	}
	if least := int64(3*40*30 + 500); together.scratch(500) < least {
		t.Errorf("a block and the file are %d bytes, and %d were said", least, together.scratch(500))
	}
}
