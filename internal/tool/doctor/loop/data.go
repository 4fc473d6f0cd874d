package loop

import (
	"path/filepath"
	"slices"
	"strings"
)

// What the samples are read from decides which advice can be followed.
const (
	OfPictures = "pictures"
	OfHDF5     = "h5py"
	OfNpz      = "npz"
	OfNpy      = "npy"
	OfSQLite   = "sqlite"
	OfLMDB     = "lmdb"
	OfHF       = "datasets"
	OfTokens   = "tokens"
	OfTable    = "table" // pandas, CSV, Parquet, Arrow
	OfJSON     = "json"
	OfArchive  = "archive"
	OfAny      = ""
)

// byStage and byExtension say what samples are read from, by the calls that read them
// and by the files that these opened.
var (
	byStage = [...]struct{ prefix, data string }{
		{"h5py", OfHDF5},
		{"datasets", OfHF},
		{"numpy.npz", OfNpz},
		{"sqlite3.", OfSQLite},
		{"lmdb.", OfLMDB},
		{"pandas.", OfTable},
		{"pyarrow.", OfTable},
		{"transformers", OfTokens},
		{"tiktoken", OfTokens},
		{"sentencepiece", OfTokens},
		{"zipfile", OfArchive},
		{"tarfile", OfArchive},
		{"PIL", OfPictures},
		{"cv2", OfPictures},
		{"torchvision.", OfPictures},
		{"json.", OfJSON},
		{"orjson.", OfJSON},
		{"numpy.load", OfNpy},
	}
	byExtension = map[string]string{
		".h5": OfHDF5, ".hdf5": OfHDF5, ".npz": OfNpz, ".npy": OfNpy, ".db": OfSQLite, ".sqlite": OfSQLite, ".sqlite3": OfSQLite, ".mdb": OfLMDB,
		".csv": OfTable, ".tsv": OfTable, ".parquet": OfTable, ".json": OfJSON, ".jsonl": OfJSON, ".zip": OfArchive, ".tar": OfArchive,
		".jpg": OfPictures, ".jpeg": OfPictures, ".png": OfPictures, ".webp": OfPictures,
	}
	byStore = map[string]string{
		"h5py": OfHDF5, "npz": OfNpz, "sqlite": OfSQLite, "lmdb": OfLMDB, "datasets": OfHF, "pandas": OfTable, "arrow": OfTable, "zip": OfArchive, "tar": OfArchive, "memmap": OfNpy,
	}
)

// Data is what the samples are read from; ofAny where that is not known.
func (v *View) Data() string {
	// A picture out of a store is a picture to whoever decodes it, and the store is what
	// it is read from: the costliest call with a name decides.
	for _, s := range v.Loop.Cost.Stages {
		for _, k := range byStage {
			if strings.HasPrefix(s.Name, k.prefix) && s.Wall.Value >= 0.02*v.Sum() {
				if k.data == OfNpy && slices.ContainsFunc(v.Loop.Settings.Files, func(f string) bool { return filepath.Ext(f) == ".npz" }) {
					return OfNpz
				}
				return k.data
			}
		}
	}
	for _, store := range v.Loop.Settings.Stores {
		if data := byStore[store]; data != OfAny {
			return data
		}
	}
	for _, f := range v.Loop.Settings.Files {
		if data := byExtension[strings.ToLower(filepath.Ext(f))]; data != OfAny {
			return data
		}
	}
	if v.Integers() {
		return OfTokens
	}
	return OfAny
}

// Integers says whether batches are of whole numbers only, wider than a byte: tokens.
func (v *View) Integers() bool {
	shape := v.Loop.Settings.Shape
	return strings.HasPrefix(shape, "[[") && !strings.Contains(shape, "float") && !strings.Contains(shape, "uint8") && strings.Count(strings.SplitAfter(shape, "]")[0], ",") == 1 &&
		(strings.Contains(shape, "int64") || strings.Contains(shape, "int32") || strings.Contains(shape, "int16"))
}

// File is one of the files that samples were read from, by its extensions; name where
// none was seen.
func (v *View) File(name string, extensions ...string) string {
	for _, f := range v.Loop.Settings.Files {
		if slices.Contains(extensions, strings.ToLower(filepath.Ext(f))) {
			return f
		}
	}
	return name
}
