package loader

import "github.com/stoker-data/stoker/internal/stagetest/fixture"

// Datasets for tests, by short names.
var (
	picture   = fixture.Picture
	pictures  = fixture.Pictures
	shards    = fixture.Shards
	unzipped  = fixture.Unzipped
	stores    = fixture.Stores
	random    = fixture.Random
	saveArray = fixture.SaveArray
	arrayFile = fixture.ArrayFile
	descrs    = fixture.Descrs
)

const formatDir = fixture.FormatDir
