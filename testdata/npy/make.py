"""Writes the files beside it with NumPy, and golden.json with what NumPy reads back.

Run by hand: python make.py (numpy 2). A case is a list of paths and, for every
field, dtype, shape of a row and the bytes of every row; or the error it must be.
"""

import io
import json
import os
import zipfile

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
os.chdir(here)
golden = {}
rng = np.random.default_rng(7)


def some(shape, dtype):
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(dtype)
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


def good(name, paths, **fields):
    golden[name] = {
        "paths": paths,
        "fields": [
            {"name": k, "dtype": str(v.dtype), "shape": list(v.shape[1:]), "rows": [row.tobytes().hex() for row in v]}
            for k, v in fields.items()
        ],
    }


def bad(name, array, code, what, **how):
    np.save(name, array, **how)
    golden[name] = {"paths": [name], "code": code, "what": what}


class Pipe(io.RawIOBase):
    """A file that cannot seek, so zipfile writes its sizes after the members."""

    def __init__(self, path):
        self.f = open(path, "wb")

    def writable(self):
        return True

    def write(self, b):
        return self.f.write(b)


for t in "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64".split():
    a = some((5, 2, 3), t)
    np.save(f"{t}.npy", a)
    good(t, [f"{t}.npy"], **{t: np.load(f"{t}.npy", mmap_mode="r")})

vector = some(9, "int64")
np.save("vector.npy", vector)
good("scalars", ["vector.npy"], vector=vector)
for version in (2, 3):
    with open(f"version{version}.npy", "wb") as f:
        np.lib.format.write_array(f, vector, version=(version, 0))
    good(f"version {version}", [f"version{version}.npy"], **{f"version{version}": vector})
np.save("column.npy", np.asfortranarray(some((4, 1), "float32")))
good("one column in Fortran order", ["column.npy"], column=np.load("column.npy"))

images, labels = some((7, 4, 5, 3), "uint8"), some(7, "int32")
np.save("images.npy", images)
np.save("labels.npy", labels)
good("pair", ["images.npy", "labels.npy"], images=images, labels=labels)
np.save("part-0.npy", images[:3])
np.save("part-1.npy", images[3:])
np.save("class_00.npy", labels[:3])
np.save("class_01.npy", labels[3:])
good("shards", ["part-0.npy", "part-1.npy", "class_00.npy", "class_01.npy"], part=images, **{"class": labels})

np.savez("plain.npz", images=images, labels=labels)
np.savez_compressed("packed.npz", images=images, labels=labels)
np.savez_compressed("packed-1.npz", labels=labels[::-1], images=images[::-1])
np.savez(Pipe("piped.npz"), images=images, labels=labels)
np.savez_compressed(Pipe("piped-packed.npz"), images=images, labels=labels)
for name in ("plain", "packed", "piped", "piped-packed"):
    good(name, [f"{name}.npz"], images=images, labels=labels)
good("npz shards", ["packed.npz", "packed-1.npz", "plain.npz"], images=np.concatenate([images, images[::-1], images]), labels=np.concatenate([labels, labels[::-1], labels]))
np.savez("unnamed.npz", images, labels)
good("unnamed", ["unnamed.npz"], arr_0=images, arr_1=labels)
with zipfile.ZipFile("mixed.npz", "w") as z:
    for name, array, method in (("x", images, zipfile.ZIP_STORED), ("y/z", labels, zipfile.ZIP_DEFLATED)):
        with z.open(zipfile.ZipInfo(name + ".npy"), "w") as f:
            np.save(f, array)
    z.writestr("README", "no array")
    z.comment = b"PK\x05\x06 a comment"
good("mixed", ["mixed.npz"], x=images, **{"y/z": labels})

bad("fortran.npy", np.asfortranarray(images), "unsupported", "Fortran order")
np.save("big.npy", vector.astype(">i8"))
good("big", ["big.npy"], big=vector.astype("<i8"))
bad("object.npy", np.array([[1], [2, 3]], dtype=object), "unsupported", "Python objects", allow_pickle=True)
bad("structured.npy", np.zeros(3, dtype=[("a", "i4"), ("b", "f8", (2,))]), "unsupported", "structures")
bad("text.npy", np.array(["a", "bcd"]), "unsupported", "text (dtype \"<U3\")")
bad("bytes.npy", np.array([b"a", b"bcd"]), "unsupported", "text")
bad("complex.npy", np.zeros(3, "c8"), "unsupported", "complex")
bad("time.npy", np.zeros(3, "M8[ns]"), "unsupported", "times")
bad("void.npy", np.zeros(3, "V2"), "unsupported", "raw bytes")
bad("long.npy", np.zeros(3, "f16"), "unsupported", "not read")
bad("scalar.npy", np.float32(3), "unsupported", "one number")
bad("empty.npy", np.zeros((0, 3), "f4"), "empty", "no row")
bad("thin.npy", np.zeros((3, 0), "f4"), "empty", "no element")
with open("several.npy", "wb") as f:
    np.save(f, labels)
    np.save(f, labels)
golden["several.npy"] = {"paths": ["several.npy"], "code": "damaged", "what": "more bytes"}
np.savez("scalar.npz", x=images, n=3)
good("scalar.npz", ["scalar.npz"], x=images)  # n cannot be a field
np.savez("uneven.npz", x=images, y=labels[1:])
golden["uneven.npz"] = {"paths": ["uneven.npz"], "code": "config", "what": "7 rows"}
with zipfile.ZipFile("lzma.npz", "w", zipfile.ZIP_LZMA) as z:
    with z.open("x.npy", "w") as f:
        np.save(f, labels)
golden["lzma.npz"] = {"paths": ["lzma.npz"], "code": "unsupported", "what": "method 14"}

with open("golden.json", "w") as f:
    f.write("{\n")
    f.write(",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in golden.items()))
    f.write("\n}\n")
