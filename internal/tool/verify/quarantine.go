package verify

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"

	"github.com/stoker-data/stoker/internal/base/errs"
	"github.com/stoker-data/stoker/internal/base/mem"
	"github.com/stoker-data/stoker/internal/base/wire"
	"github.com/stoker-data/stoker/internal/stage/format"
	"github.com/stoker-data/stoker/internal/stage/source"
	"github.com/stoker-data/stoker/internal/tool/show"
)

// The files of a quarantine, beside the copies of damaged samples.
const (
	SoundName  = "sound.npy"   // int64: ids of the undamaged samples, for order.subset
	DamageName = "damage.json" // what is damaged, and where
)

// Quarantine writes a list of the damage to dir, with the stored bytes of every
// damaged sample as far as they can be read, and the ids of the others. The data is
// not changed. ds is nil if the dataset does not open: then there are no copies.
func Quarantine(ctx context.Context, ds format.Stored, src source.Source, r *Report, dir string) error {
	dir, err := source.ToWrite(dir, "a quarantine")
	if err != nil {
		return err
	}
	// Empty lists, not null, if there is nothing in them.
	broken, list, shards := append([]int64{}, r.Broken...), append([]*wire.Error{}, r.Damage...), append([]*wire.Error{}, r.Shards...)
	damage, err := json.MarshalIndent(struct {
		Digest  string        `json:"digest"`
		Samples int64         `json:"samples"`
		Broken  []int64       `json:"broken"`
		Damage  []*wire.Error `json:"damage"`
		Shards  []*wire.Error `json:"shards"`
		Sound   []string      `json:"sound_files,omitempty"` // files in which the ids count, if others do not open
	}{r.Digest, r.Samples, broken, list, shards, r.Sound}, "", "  ")
	if err != nil {
		return err
	}
	for _, id := range r.Broken {
		if ds == nil {
			break
		}
		if err := copyStored(ctx, ds, src, id, dir); err != nil {
			return err
		}
	}
	if err := writeWhole(filepath.Join(dir, SoundName), npy(sound(r.Samples, r.Broken))); err != nil {
		return err
	}
	return writeWhole(filepath.Join(dir, DamageName), append(damage, '\n'))
}

// maxCopy bounds what is copied of one damaged sample, in bytes: its length may be
// damaged.
const maxCopy = 256 << 20

// copyStored copies the bytes of a sample, each extent to a separate file.
func copyStored(ctx context.Context, ds format.Stored, src source.Source, id int64, dir string) error {
	x := ds.Index()
	for n, e := range ds.Extents(id, nil, nil) {
		path := string(x.AppendPath(e.File, nil))
		size, version := x.Stamp(e.File)
		p := make([]byte, min(e.Len, maxCopy))
		if err := src.ReadAt(ctx, source.Info{Name: path, Size: size, Version: version}, p, e.Off); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			continue // it is in the list, with the reason
		}
		name := fmt.Sprintf("%09d-%d-%s", id, n, filepath.Base(path))
		if err := writeWhole(filepath.Join(dir, name), p); err != nil {
			return err
		}
	}
	return nil
}

// npy is numbers as a file of NumPy.
func npy(v []int64) []byte {
	elems := make([]byte, 0, 8*len(v))
	for _, n := range v {
		elems = binary.LittleEndian.AppendUint64(elems, uint64(n))
	}
	return format.NPY(mem.Int64, []int{len(v)}, elems)
}

// unlike says of how many files something else is known.
func unlike(n int, its, their string) string {
	if n == 1 {
		return "1 file does not match " + its
	}
	return fmt.Sprintf("%d files do not match %s", n, their)
}

// Err is the error of a command that found damage, or nil.
func (r *Report) Err() error {
	switch {
	case len(r.Sound) == 0 && len(r.Shards) > 0 && r.Unread != nil && r.Manifest == "":
		return errs.New(errs.Damaged, "%d of %s cannot be read", len(r.Shards), errs.Many(r.Files, "file")).
			Try("fetch those files again, then verify again: no sample of the others was read")
	case len(r.Sound) > 0:
		return errs.New(errs.Damaged, "%s cannot be read, and %s", errs.Many(len(r.Shards), "file"), show.Of(r.Damaged, r.Checked, "checked in the other datasets", "damaged")).
			Try("fetch those files again; --quarantine DIR lists the undamaged samples of the others, with ids that leave these files out")
	case len(r.Shards) > 0 && r.Manifest == "":
		return errs.New(errs.Damaged, "%s, and %s", unlike(len(r.Shards), "its hash", "their hashes"), show.Of(r.Damaged, r.Checked, "checked", "damaged")).
			Try("fetch those files again from their source")
	case len(r.Shards) > 0:
		return errs.New(errs.Damaged, "%s, and %s", unlike(len(r.Shards), "the manifest", "the manifest"), show.Of(r.Damaged, r.Checked, "checked", "damaged")).
			Try("remove the damaged shards and run `stoker pack` again with the same options: it makes only those")
	case len(r.Lost) > 0:
		return errs.New(errs.Damaged, "%s of the file cannot be read, and %s", errs.Many(len(r.Lost), "dataset"), show.Of(r.Damaged, r.Checked, "checked in the other datasets", "damaged")).
			Try("fetch the file again, or load only the others: columns=[...]")
	case r.Damaged == 0:
		return nil
	}
	return errs.New(errs.Damaged, "%s", show.Of(r.Damaged, r.Checked, "checked", "damaged")).
		Try(`fetch the damaged files again; --quarantine DIR lists the undamaged samples, for order.subset; or train with on_bad="skip"`)
}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	what := fmt.Sprintf("%s, %s in %s, %s", r.Format, show.Count(r.Samples, "sample", "samples"), show.Count(r.Files, "file", "files"), show.Size(r.Bytes))
	if r.Unread != nil && r.Manifest == "" {
		what = show.Count(r.Files, "file", "files")
	}
	fmt.Fprintf(w, "%s\n", what)
	if r.Manifest != "" {
		fmt.Fprintf(w, "  files compared with %s\n", errs.Name(r.Manifest))
	}
	if r.Hashed > 0 {
		fmt.Fprintf(w, "  %s compared with the hashes that came with the data\n", show.Count(r.Hashed, "file", "files"))
	}
	if r.Unread != nil && r.Manifest != "" {
		fmt.Fprintf(w, "the dataset does not open: %s\n", r.Unread.What)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(w, "  note: %s\n", note)
	}
	switch {
	case r.Checked == 0 && r.Unread != nil:
		fmt.Fprintln(w, "  the dataset does not open: no sample was read")
	case r.Checked == 0:
		fmt.Fprintln(w, "  counts, sizes and structure agree; no sample was read")
	case !r.Opened:
		fmt.Fprintf(w, "  %s compared with what was packed\n", show.Count(r.Checked, "sample", "samples"))
	default:
		fmt.Fprintf(w, "  %s of %s read and decoded\n", show.Number(float64(r.Checked)), show.Count(r.Samples, "sample", "samples"))
	}
	switch {
	case r.Manifest != "" && r.Compared > 0:
		fmt.Fprintf(w, "  %s of samples compared\n", show.Count(r.Compared, "digest", "digests"))
	case r.Manifest != "":
	case r.Digests != "" && r.Checked > 0:
		fmt.Fprintf(w, "  %s compared with %s\n", show.Count(r.Compared, "digest", "digests"), r.Digests)
	case r.Checked > 0 && r.Hashed == 0:
		fmt.Fprintln(w, "  no digests to compare with: `stoker index --digests` records them")
	}
	list := func(all []*wire.Error) {
		for _, e := range all {
			fmt.Fprintf(w, "  %s\n", e.Line())
		}
	}
	if len(r.Shards) > 0 {
		what := "not as it was written"
		switch {
		case len(r.Sound) == 0 && r.Unread != nil && r.Manifest == "":
			what = "damaged as a whole"
		case len(r.Sound) > 0:
			what = "damaged as a whole; the others were checked without"
		}
		fmt.Fprintf(w, "%s %s:\n", show.Count(int64(len(r.Shards)), "file is", "files are"), what)
		list(r.Shards)
	}
	if len(r.Lost) > 0 {
		fmt.Fprintf(w, "%s damaged:\n", show.Count(int64(len(r.Lost)), "dataset of the file is", "datasets of the file are"))
		list(r.Lost)
	}
	r.WriteTrailing(w)
	if r.Damaged == 0 && len(r.Shards) == 0 {
		_, err := fmt.Fprintln(w, "no damage found")
		return err
	}
	if r.Damaged == 0 {
		return nil
	}
	fmt.Fprintf(w, "%s damaged:\n", show.Count(r.Damaged, "sample is", "samples are"))
	list(r.Damage)
	if more := r.Damaged - int64(len(r.Damage)); more > 0 {
		fmt.Fprintf(w, "  and %s more\n", show.Number(float64(more)))
	}
	return nil
}
