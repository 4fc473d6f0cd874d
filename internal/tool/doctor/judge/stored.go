package judge

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/stoker-data/stoker/internal/tool/doctor/loop"
)

// oneArray makes one array for each key of many .npz files: stack where each is a sample,
// concatenate where each holds many.
func (v *view) oneArray(join string) Change {
	dir := filepath.Dir(v.File("data/x.npz", ".npz"))
	return Change{strings.Join([]string{
		"import glob, numpy as np  # once: one array of all samples for each key",
		fmt.Sprintf("files = sorted(glob.glob(%q))", dir+"/*.npz"),
		fmt.Sprintf("for key in np.load(files[0]).files: np.save(key + \".npy\", np.%s([np.load(f)[key] for f in files]))", join),
	}, "\n"), "then self.x = np.load(\"x.npy\", mmap_mode=\"r\") in __init__, and self.x[i].copy() for a sample: nothing is unpacked or opened"}
}

// stored is how to keep what samples are decoded from so that it costs less.
func (v *view) stored() []Change {
	switch v.Data() {
	case loop.OfHDF5:
		f := v.File("data.h5", ".h5", ".hdf5")
		return []Change{
			{strings.Join([]string{
				"import h5py  # once: contiguous and not compressed, so that a sample is one read",
				fmt.Sprintf("with h5py.File(%q) as old, h5py.File(%q, \"w\") as new:", f, beside(f, "-flat")),
				"    for name in old: new.create_dataset(name, data=old[name][:])",
			}, "\n"), "reading a sample from a compressed or large chunk costs the whole chunk; only the path changes in the rest of the script"},
			{fmt.Sprintf("stoker.DataLoader(stoker.HDF5Dataset(%q), ...)", f), "or the same file read by threads of the engine"},
		}
	case loop.OfNpz:
		dir := filepath.Dir(v.File("data/x.npz", ".npz"))
		return []Change{
			v.oneArray("stack"),
			{strings.Join([]string{
				"import numpy as np; from pathlib import Path",
				fmt.Sprintf("new = Path(%q); new.mkdir(exist_ok=True)", dir+"-plain"),
				fmt.Sprintf("for p in Path(%q).glob(\"*.npz\"): np.savez(new / p.name, **np.load(p))", dir),
			}, "\n"), "if shapes differ: the same files, not compressed"},
		}
	case loop.OfNpy:
		return []Change{{`self.data = np.load(path, mmap_mode="r")  # once, in __init__`, "samples are then read directly from the file: torch.from_numpy(self.data[i].copy())"}}
	case loop.OfLMDB:
		return []Change{{"with self.env.begin(buffers=True) as txn: value = txn.get(key)", "no copy of the value; and store arrays as bytes for np.frombuffer, not pickled"}}
	case loop.OfHF:
		return []Change{
			{`dataset = dataset.with_format("torch")`, "columns become tensors without Python lists in between"},
			{"def __getitems__(self, indices): return self.dataset[indices]", "or a batch in one call, with a collate_fn that expects columns"},
		}
	case loop.OfTable:
		return []Change{{"self.x = torch.from_numpy(frame[columns].to_numpy(np.float32))  # once, in __init__", "and return self.x[i]: a row of a frame is a new object with an index each time"}}
	case loop.OfTokens:
		return []Change{
			{`np.save("tokens.npy", tokens); self.tokens = np.load("tokens.npy", mmap_mode="r")`, "tokenise once, and slice a mapped array"},
			{`stoker.DataLoader(stoker.TokenDataset("tokens.npy", length=1024), ...)`, "or windows cut by the engine"},
		}
	case loop.OfJSON:
		return []Change{{`np.save(path.replace(".json", ".npy"), values)  # once for each file; then np.load(path)`, "numbers as text are parsed again in every epoch"}}
	case loop.OfSQLite:
		return []Change{{`SELECT data FROM samples WHERE rowid IN (?, ?, ...)`, "a batch in one query, in __getitems__(self, indices)"}}
	case loop.OfArchive:
		return []Change{{"python -m zipfile -e data.zip data/", "unpacked once; or stoker.WebDataset(\"shard-*.tar\") reads tar shards in place"}}
	}
	return nil
}

// beside is a path with something before its extension.
func beside(path, what string) string {
	ext := filepath.Ext(path)
	return strings.TrimSuffix(path, ext) + what + ext
}
