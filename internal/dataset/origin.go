package dataset

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/stoker-data/stoker/internal/stage/index"
	"github.com/stoker-data/stoker/internal/stage/packing"
	"github.com/stoker-data/stoker/internal/stage/source"
)

// packedFrom is the dataset that a part was packed from.
type packedFrom struct {
	digest  string // "": it is not a packing of all samples of another dataset in their order
	altered string // how packing changed what is delivered; "": the bytes are the source's
	// unlike is the digest of a dataset that this one was packed from as a different
	// sequence of samples, and why says how it differs: its states do not fit, and
	// loading one must say so. "": there is none.
	unlike, why string
}

// manifestOf is the manifest of the packing whose shards the files of an index are; nil:
// none can be read there.
func manifestOf(ctx context.Context, src source.Source, x *index.Index) *packed {
	if x.Files() == 0 {
		return nil
	}
	m, err := readPacking(ctx, src, source.Join(source.Dir(string(x.AppendPath(0, nil))), packing.ManifestName))
	if err != nil {
		return nil
	}
	return m
}

// sourceOf is what the manifest beside the files of an index says about the packed
// dataset. Only a complete packing in the source's order counts: id by id, its samples
// are the source's.
func sourceOf(m *packed, x *index.Index) (from packedFrom) {
	if m == nil || m.Source.Digest == "" {
		return from
	}
	dir := source.Dir(string(x.AppendPath(0, nil)))
	from.why = packing.Unlike(&m.Manifest)
	if from.why == "" && (x.Len() != m.Samples || !m.holds(x, dir)) {
		from.why = "the shards of the packing are not all here, in their order"
	}
	if from.why != "" {
		from.unlike = m.Source.Digest
		return from
	}
	from.digest = m.Source.Digest
	var how []string
	for _, o := range []struct {
		name  string
		value int
	}{{"resize", m.Options.Resize}, {"crop", m.Options.Crop}, {"quality", m.Options.Quality}} {
		if o.value > 0 {
			how = append(how, fmt.Sprintf("%s %d", o.name, o.value))
		}
	}
	from.altered = strings.Join(how, ", ")
	return from
}

// holds reports whether the files of an index are those of the packing: every shard
// once, in order, with the length that was written. A shard may be several files, one
// per field, and fields may be left out.
func (m *packed) holds(x *index.Index, dir string) bool {
	type written struct {
		shard, file int
		bytes       int64
	}
	files := map[string]written{}
	for s, sh := range m.Shards {
		for f, file := range sh.Files {
			files[path.Base(file.Name)] = written{s, f, file.Bytes}
		}
	}
	next := map[int]int{} // shard, by the number of its file
	for f := range x.Files() {
		name := string(x.AppendPath(f, nil))
		at, known := files[path.Base(name)]
		size, _ := x.Stamp(f)
		if !known || source.Dir(name) != dir || at.shard != next[at.file] || size != at.bytes {
			return false
		}
		next[at.file]++
	}
	for _, shards := range next {
		if shards != len(m.Shards) {
			return false
		}
	}
	return true
}

// Sources are the digests of the datasets that this one was packed from: those of
// mixtures with some or all of their members packed.
func (c *Collection) Sources() (all []string) {
	const most = 8 // members: beyond, a mixture of sources alone
	packed := 0
	for _, p := range c.Parts {
		if p.from.digest != "" {
			packed++
		}
	}
	if packed == 0 {
		return nil
	}
	mixtures := [][]string{nil}
	for _, p := range c.Parts {
		var longer [][]string
		for _, m := range mixtures {
			if p.from.digest != "" {
				longer = append(longer, append(slices.Clone(m), p.from.digest))
			}
			if p.from.digest == "" || packed <= most {
				longer = append(longer, append(slices.Clone(m), p.digest))
			}
		}
		mixtures = longer
	}
	for _, m := range mixtures {
		if d := mixtureDigest(m); d != c.digest {
			all = append(all, d)
		}
	}
	return all
}

// Unlike is the datasets that this one was packed from as a different sequence of
// samples, by digest, with how each differs. It ignores the members of mixtures.
func (c *Collection) Unlike() map[string]string {
	if len(c.Parts) != 1 || c.Parts[0].from.unlike == "" {
		return nil
	}
	return map[string]string{c.Parts[0].from.unlike: c.Parts[0].from.why}
}

// Altered says how packing changed what is delivered.
func (c *Collection) Altered() string {
	var all []string
	for _, p := range c.Parts {
		if p.from.altered != "" && !slices.Contains(all, p.from.altered) {
			all = append(all, p.from.altered)
		}
	}
	return strings.Join(all, "; ")
}

// mixtureDigest is the digest of datasets one after the other. It is part of saved
// states.
func mixtureDigest(digests []string) string {
	if len(digests) == 1 {
		return digests[0]
	}
	h := xxhash.New()
	for _, d := range digests {
		fmt.Fprintln(h, d)
	}
	return fmt.Sprintf("%016x", h.Sum64())
}
