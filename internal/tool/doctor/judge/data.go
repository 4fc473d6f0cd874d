package judge

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// What the samples are read from decides which advice can be followed.
const (
	ofPictures = "pictures"
	ofHDF5     = "h5py"
	ofNpz      = "npz"
	ofNpy      = "npy"
	ofSQLite   = "sqlite"
	ofLMDB     = "lmdb"
	ofHF       = "datasets"
	ofTokens   = "tokens"
	ofTable    = "table" // pandas, CSV, Parquet, Arrow
	ofJSON     = "json"
	ofArchive  = "archive"
	ofAny      = ""
)

// byStage and byExtension say what samples are read from, by the calls that read them
// and by the files that these opened.
var (
	byStage = [...]struct{ prefix, data string }{
		{"h5py", ofHDF5},
		{"datasets", ofHF},
		{"numpy.npz", ofNpz},
		{"sqlite3.", ofSQLite},
		{"lmdb.", ofLMDB},
		{"pandas.", ofTable},
		{"pyarrow.", ofTable},
		{"transformers", ofTokens},
		{"tiktoken", ofTokens},
		{"sentencepiece", ofTokens},
		{"zipfile", ofArchive},
		{"tarfile", ofArchive},
		{"PIL", ofPictures},
		{"cv2", ofPictures},
		{"torchvision.", ofPictures},
		{"json.", ofJSON},
		{"orjson.", ofJSON},
		{"numpy.load", ofNpy},
	}
	byExtension = map[string]string{
		".h5": ofHDF5, ".hdf5": ofHDF5, ".npz": ofNpz, ".npy": ofNpy, ".db": ofSQLite, ".sqlite": ofSQLite, ".sqlite3": ofSQLite, ".mdb": ofLMDB,
		".csv": ofTable, ".tsv": ofTable, ".parquet": ofTable, ".json": ofJSON, ".jsonl": ofJSON, ".zip": ofArchive, ".tar": ofArchive,
		".jpg": ofPictures, ".jpeg": ofPictures, ".png": ofPictures, ".webp": ofPictures,
	}
	byStore = map[string]string{
		"h5py": ofHDF5, "npz": ofNpz, "sqlite": ofSQLite, "lmdb": ofLMDB, "datasets": ofHF, "pandas": ofTable, "arrow": ofTable, "zip": ofArchive, "tar": ofArchive, "memmap": ofNpy,
	}
)

// data is what the samples are read from; ofAny where that is not known.
func (v *view) data() string {
	// A picture out of a store is a picture to whoever decodes it, and the store is what
	// it is read from: the costliest call with a name decides.
	for _, s := range v.l.Cost.Stages {
		for _, k := range byStage {
			if strings.HasPrefix(s.Name, k.prefix) && s.Wall.Value >= 0.02*v.sum() {
				if k.data == ofNpy && slices.ContainsFunc(v.l.Settings.Files, func(f string) bool { return filepath.Ext(f) == ".npz" }) {
					return ofNpz
				}
				return k.data
			}
		}
	}
	for _, store := range v.l.Settings.Stores {
		if data := byStore[store]; data != ofAny {
			return data
		}
	}
	for _, f := range v.l.Settings.Files {
		if data := byExtension[strings.ToLower(filepath.Ext(f))]; data != ofAny {
			return data
		}
	}
	if v.integers() {
		return ofTokens
	}
	return ofAny
}

// integers says whether batches are of whole numbers only, wider than a byte: tokens.
func (v *view) integers() bool {
	shape := v.l.Settings.Shape
	return strings.HasPrefix(shape, "[[") && !strings.Contains(shape, "float") && !strings.Contains(shape, "uint8") && strings.Count(strings.SplitAfter(shape, "]")[0], ",") == 1 &&
		(strings.Contains(shape, "int64") || strings.Contains(shape, "int32") || strings.Contains(shape, "int16"))
}

// file is one of the files that samples were read from, by its extensions; name where
// none was seen.
func (v *view) file(name string, extensions ...string) string {
	for _, f := range v.l.Settings.Files {
		if slices.Contains(extensions, strings.ToLower(filepath.Ext(f))) {
			return f
		}
	}
	return name
}

// oneArray makes one array for each key of many .npz files: stack where each is a sample,
// concatenate where each holds many.
func (v *view) oneArray(join string) Change {
	dir := filepath.Dir(v.file("data/x.npz", ".npz"))
	return Change{strings.Join([]string{
		"import glob, numpy as np  # once: one array of all samples for each key",
		fmt.Sprintf("files = sorted(glob.glob(%q))", dir+"/*.npz"),
		fmt.Sprintf("for key in np.load(files[0]).files: np.save(key + \".npy\", np.%s([np.load(f)[key] for f in files]))", join),
	}, "\n"), "then self.x = np.load(\"x.npy\", mmap_mode=\"r\") in __init__, and self.x[i].copy() for a sample: nothing is unpacked or opened"}
}

// stored is how to keep what samples are decoded from so that it costs less.
func (v *view) stored() []Change {
	switch v.data() {
	case ofHDF5:
		f := v.file("data.h5", ".h5", ".hdf5")
		return []Change{
			{strings.Join([]string{
				"import h5py  # once: contiguous and not compressed, so that a sample is one read",
				fmt.Sprintf("with h5py.File(%q) as old, h5py.File(%q, \"w\") as new:", f, beside(f, "-flat")),
				"    for name in old: new.create_dataset(name, data=old[name][:])",
			}, "\n"), "reading a sample from a compressed or large chunk costs the whole chunk; only the path changes in the rest of the script"},
			{fmt.Sprintf("stoker.DataLoader(stoker.HDF5Dataset(%q), ...)", f), "or the same file read by threads of the engine"},
		}
	case ofNpz:
		dir := filepath.Dir(v.file("data/x.npz", ".npz"))
		return []Change{
			v.oneArray("stack"),
			{strings.Join([]string{
				"import numpy as np; from pathlib import Path",
				fmt.Sprintf("new = Path(%q); new.mkdir(exist_ok=True)", dir+"-plain"),
				fmt.Sprintf("for p in Path(%q).glob(\"*.npz\"): np.savez(new / p.name, **np.load(p))", dir),
			}, "\n"), "if shapes differ: the same files, not compressed"},
		}
	case ofNpy:
		return []Change{{`self.data = np.load(path, mmap_mode="r")  # once, in __init__`, "samples are then read directly from the file: torch.from_numpy(self.data[i].copy())"}}
	case ofLMDB:
		return []Change{{"with self.env.begin(buffers=True) as txn: value = txn.get(key)", "no copy of the value; and store arrays as bytes for np.frombuffer, not pickled"}}
	case ofHF:
		return []Change{
			{`dataset = dataset.with_format("torch")`, "columns become tensors without Python lists in between"},
			{"def __getitems__(self, indices): return self.dataset[indices]", "or a batch in one call, with a collate_fn that expects columns"},
		}
	case ofTable:
		return []Change{{"self.x = torch.from_numpy(frame[columns].to_numpy(np.float32))  # once, in __init__", "and return self.x[i]: a row of a frame is a new object with an index each time"}}
	case ofTokens:
		return []Change{
			{`np.save("tokens.npy", tokens); self.tokens = np.load("tokens.npy", mmap_mode="r")`, "tokenise once, and slice a mapped array"},
			{`stoker.DataLoader(stoker.TokenDataset("tokens.npy", length=1024), ...)`, "or windows cut by the engine"},
		}
	case ofJSON:
		return []Change{{`np.save(path.replace(".json", ".npy"), values)  # once for each file; then np.load(path)`, "numbers as text are parsed again in every epoch"}}
	case ofSQLite:
		return []Change{{`SELECT data FROM samples WHERE rowid IN (?, ?, ...)`, "a batch in one query, in __getitems__(self, indices)"}}
	case ofArchive:
		return []Change{{"python -m zipfile -e data.zip data/", "unpacked once; or stoker.WebDataset(\"shard-*.tar\") reads tar shards in place"}}
	}
	return nil
}

// beside is a path with something before its extension.
func beside(path, what string) string {
	ext := filepath.Ext(path)
	return strings.TrimSuffix(path, ext) + what + ext
}
