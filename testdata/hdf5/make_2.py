"""Writes what HDF5 2 does otherwise than 1.14, with h5py 3.16 (HDF5 2.0.0), and what
that reads out of it (want_2.json).

    python make_2.py        # h5py 3.16 (HDF5 2.0.0), numpy

libver="latest" is layouts of version 5 there. And a shuffle of data of variable
length has no number of bytes, and is skipped in every chunk.
"""

import h5py
import numpy as np

from make import latest, main, ramp

assert h5py.version.hdf5_version_tuple[0] == 2, h5py.version.hdf5_version


def large(f):
    """Chunks whose bytes are counted in more than four bytes; none is written."""
    f.create_dataset("declared", (4, 1 << 20, 1 << 13), np.uint8, chunks=(1, 1 << 20, 1 << 13))
    f.create_dataset("rows", data=np.arange(4), chunks=(2,))


def shuffled(f):
    """Data of variable length in chunks that should be shuffled."""
    n = 40
    f["rows"] = np.arange(n)
    for name, kw in {"": {}, "_gzip": dict(compression="gzip"), "_lzf": dict(compression="lzf")}.items():
        d = f.create_dataset("ints" + name, (n,), h5py.vlen_dtype(np.int32), chunks=(7,), shuffle=True, **kw)
        for i in range(n):
            d[i] = ramp((i % 9,), np.int32, i)
        texts = ["text %d " % i * (i % 3) for i in range(n)]
        f.create_dataset("texts" + name, data=texts, dtype=h5py.string_dtype(), chunks=(7,), shuffle=True, **kw)


FILES = {
    "latest_2": (latest, dict(libver="latest")),
    "shuffled_2": (shuffled, {}),
    "shuffled_latest_2": (shuffled, dict(libver="latest")),
    "large_2": (large, dict(libver="latest")),
}

if __name__ == "__main__":
    main(FILES, "want_2.json")
