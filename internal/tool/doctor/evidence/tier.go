package evidence

// Tier is one measurement of a dataset that was loaded, beside those that the
// verdict rests on. Which figures it has depends on what it is of.
type Tier struct {
	Of   string `json:"of"` // one of the groups below
	Name string `json:"name"`

	Rate  Figure `json:"samples_per_second,omitzero"`
	Batch Figure `json:"batch_s,omitzero"` // from one batch to the next
	Mean  Figure `json:"mean_s,omitzero"`  // of one sample, read or file
	P99   Figure `json:"p99_s,omitzero"`
	Count Figure `json:"count,omitzero"` // of what was timed; of lanes, slots, samples that were held
	Bytes Figure `json:"bytes_per_second,omitzero"`
	Size  Figure `json:"bytes,omitzero"`
	Limit Figure `json:"limit_bytes,omitzero"`

	// Cut says why it was not measured; empty: it was.
	Cut string `json:"cut,omitempty"`
}

// The groups of tiers, in their order.
const (
	OfGain    = "gain"    // batches out of nothing against the dataset's, with the step that is pretended
	OfSample  = "sample"  // what one sample costs, alone
	OfJPEG    = "jpeg"    // JPEGs by decoder, where more than a few are not stoker's own decoder's
	OfLanes   = "lanes"   // as fast as it goes, by lanes
	OfStorage = "storage" // what reading costs, without loader
	OfMemory  = "memory"  // what the loader and its process held
)

// The tiers of OfGain.
const (
	OutOfNothing = "batches out of nothing"
	TheDataset   = "the dataset"
)

// The tiers of OfJPEG of which more is said; others are named by what is unusual in them.
const (
	OwnDecoder  = "stoker's own decoder" // that all should be of
	Progressive = "progressive"
)

// PretendedStep is the seconds that a step was told to take; 0: it was not.
func (ev Evidence) PretendedStep() float64 {
	if p := ev.Subject.Step; p.Known() {
		return p.Value
	}
	return 0
}

// Tier is the first of a group with a name; nothing where there is none.
func (ev Evidence) Tier(of, name string) Tier {
	for _, t := range ev.Tiers {
		if t.Of == of && t.Name == name {
			return t
		}
	}
	return Tier{}
}

// Source is where a tier's first figure was measured.
func (t Tier) Source() string {
	for _, f := range [...]Figure{t.Rate, t.Mean, t.Bytes, t.Size} {
		if f.Known() {
			return f.Source
		}
	}
	return ""
}
