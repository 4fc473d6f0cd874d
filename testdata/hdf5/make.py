"""Writes the files of this folder with the real library, and what h5py reads out
of them (want.json): per dataset its type, its shape, the place of its chunks as
the HDF5 library tells it, and one SHA-256 over all rows.

    python make.py        # h5py with HDF5 1.14.6, numpy

Run it by hand, and keep the output; the files are gzipped.
"""

import gzip
import hashlib
import json
import os
import tempfile

import h5py
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))


def ramp(shape, dtype, step=1):
    """Numbers that need no generator, differ from row to row, and compress."""
    n = int(np.prod(shape))
    return (np.arange(n, dtype=np.int64) // 3 * step % 113).astype(dtype).reshape(shape)


def attributes(f):
    f.attrs["title"] = "photos of coffee"
    f.attrs["mean"] = np.array([0.5, 0.25, 0.125], np.float32)
    f.attrs["classes"] = np.array([b"cat", b"doge"])
    f.attrs["count"] = 24
    f.attrs["flag"] = True


def plain(f):
    attributes(f)
    f["images"] = ramp((24, 4, 5, 3), np.uint8)
    f["labels"] = np.arange(24, dtype=np.int64) % 5
    f["mean"] = np.arange(60, dtype=np.float32).reshape(4, 5, 3)
    f["version"] = 3
    f["images"].attrs["unit"] = "8 bit"


FILTERS = {
    "none": {},
    "gzip": dict(compression="gzip"),
    "gzip9_shuffle": dict(compression="gzip", compression_opts=9, shuffle=True),
    "lzf": dict(compression="lzf"),
    "lzf_shuffle": dict(compression="lzf", shuffle=True),
    "fletcher": dict(fletcher32=True),
    "shuffle": dict(shuffle=True),
    "all": dict(compression="gzip", shuffle=True, fletcher32=True),
    "all_lzf": dict(compression="lzf", shuffle=True, fletcher32=True),
}


def filters(f):
    data = ramp((37, 7, 6), np.float32)
    for name, kw in FILTERS.items():
        f.create_dataset(name, data=data, chunks=(5, 4, 4), **kw)
        f.create_dataset(name + "_rows", data=data.astype(np.uint16), chunks=(8, 7, 6), **kw)
    # Bytes that no filter makes shorter: it is left out, chunk by chunk.
    noise = np.frombuffer(b"".join(hashlib.sha256(b"%d" % i).digest() for i in range(37)), np.uint8).reshape(37, 32)
    f.create_dataset("noise_lzf", data=noise, chunks=(3, 32), compression="lzf")
    f.create_dataset("noise_gzip", data=noise, chunks=(3, 32), compression="gzip", fletcher32=True)


def types(f):
    n = 11
    for t in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "?"):
        f["le_" + t.replace("?", "b")] = ramp((n, 3), t)
        if t not in ("u1", "i1", "?"):
            f["be_" + t] = ramp((n, 3), t).astype(">" + t)
    f.create_dataset("be_packed", data=ramp((n, 4), ">i4"), chunks=(3, 4), compression="gzip", shuffle=True)
    f["fixed"] = np.array([b"text %d" % (i * i * i) for i in range(n)], "S9")
    f.create_dataset("fixed_packed", data=f["fixed"][...], chunks=(4,), compression="gzip")
    f.create_dataset("strings", data=["n\u00fcmber %d" % i * (i % 4) for i in range(n)], dtype=h5py.string_dtype())
    jpegs = f.create_dataset("jpegs", (n,), dtype=h5py.vlen_dtype(np.uint8))
    tokens = f.create_dataset("tokens", (n,), dtype=h5py.vlen_dtype(np.int32), chunks=(4,), compression="gzip")
    for i in range(n):
        jpegs[i] = ramp((i * 731 % 5000,), np.uint8)
        tokens[i] = np.arange(i * 3 % 8, dtype=np.int32) * -i
    f["opaque"] = np.array([np.void(b"%05d" % i) for i in range(n)])
    f.create_dataset("arrays", (n,), dtype=np.dtype(("i2", (2, 3))))[...] = ramp((n, 2, 3), np.int16)
    f.create_dataset("enum", data=np.arange(n) % 3, dtype=h5py.enum_dtype({"RED": 0, "GREEN": 1, "BLUE": 42}, basetype="i2"))
    f["named_type"] = np.dtype("f8")
    f.create_dataset("of_named", data=ramp((n,), "f8"), dtype=f["named_type"])


def refused(f):
    n = 6
    f["fine"] = np.arange(n)
    f["compound"] = np.zeros(n, [("x", "f4"), ("y", "i2")])
    f["complex"] = np.zeros(n, "c8")
    f.create_dataset("scaleoffset", data=np.arange(n), chunks=(n,), scaleoffset=0)
    f.create_dataset("references", (n,), dtype=h5py.ref_dtype)
    f.create_dataset("strings2d", (n, 2), dtype=h5py.string_dtype())
    dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    dcpl.set_external(b"elsewhere.bin", 0, 8 * n)
    h5py.h5d.create(f.id, b"external", h5py.h5t.NATIVE_INT64, h5py.h5s.create_simple((n,)), dcpl)
    layout = h5py.VirtualLayout((n,), "i8")
    layout[:] = h5py.VirtualSource("other.h5", "x", (n,))
    f.create_virtual_dataset("virtual", layout)
    dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    dcpl.set_chunk((n,))
    dcpl.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (3,))
    h5py.h5d.create(f.id, b"zstd", h5py.h5t.NATIVE_INT64, h5py.h5s.create_simple((n,)), dcpl)


def groups(f):
    f["train/x"] = ramp((20, 3), np.uint8)
    f["train/y"] = np.arange(20)
    f["val/x"] = ramp((8, 3), np.uint8)
    f["val/y"] = np.arange(8)
    f["soft"] = h5py.SoftLink("/train/x")
    f["train/relative"] = h5py.SoftLink("y")
    f["dangling"] = h5py.SoftLink("/nowhere")
    f["outside"] = h5py.ExternalLink("other.h5", "/x")
    f["again"] = f["val/x"]
    f["val"]["loop"] = f["/"]
    for i in range(60):
        f[f"many/{i:03d}"] = np.int8(i)
        f["many"].attrs[f"attribute {i:02d}"] = i * 1.5


def chunk_orders(f):
    """B-trees of several levels, written in the order of rows and in another."""
    data = ramp((1500, 2), np.int32)
    f.create_dataset("rows", data=data, chunks=(1, 2), maxshape=(None, 2))
    d = f.create_dataset("scattered", (1500, 2), np.int32, chunks=(1, 2), maxshape=(None, 2), compression="gzip")
    for i in range(1500):
        d[i * 7 % 1500] = data[i * 7 % 1500]


def sparse(f):
    d = f.create_dataset("holes", (50, 4), np.int16, chunks=(5, 3), fillvalue=-7, compression="gzip")
    for i in (3, 17, 18, 44):
        d[i] = ramp((4,), np.int16) + i
    f.create_dataset("nothing", (50, 2), np.float32, fillvalue=1.5)
    f.create_dataset("zeros", (50,), np.uint8, chunks=(7,))
    d = f.create_dataset("grown", (10, 3), np.uint8, chunks=(4, 3), maxshape=(None, 3), fillvalue=9)
    d[...] = 1
    d.resize((50, 3))
    d[30:33] = 2
    d = f.create_dataset("shrunk", (70, 3), np.uint8, chunks=(4, 3), maxshape=(None, 3), compression="lzf")
    d[...] = ramp((70, 3), np.uint8)
    d.resize((50, 3))
    dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    dcpl.set_layout(h5py.h5d.COMPACT)
    d = h5py.h5d.create(f.id, b"compact", h5py.h5t.STD_I16LE, h5py.h5s.create_simple((50,)), dcpl)
    d.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(50, dtype=np.int16))


def latest(f):
    """Every index of chunks of the newer layout, with filters and without."""
    data = ramp((2600, 2), np.int16)
    wide = ramp((60, 9, 8), np.uint16)
    for name, kw in {"": {}, "_gzip": dict(compression="gzip")}.items():
        f.create_dataset("single" + name, data=wide, chunks=(60, 9, 8), **kw)
        f.create_dataset("fixed" + name, data=wide, chunks=(7, 4, 3), **kw)
        f.create_dataset("fixed_max" + name, data=wide, chunks=(7, 4, 3), maxshape=(200, 9, 20), **kw)
        f.create_dataset("extensible" + name, data=wide, chunks=(7, 4, 3), maxshape=(None, 9, 8), **kw)
        f.create_dataset("extensible2" + name, data=wide, chunks=(7, 4, 3), maxshape=(60, None, 20), **kw)
        f.create_dataset("tree" + name, data=wide, chunks=(7, 4, 3), maxshape=(None, None, 8), **kw)
    f.create_dataset("pages", data=data, chunks=(1, 2), compression="gzip")
    d = f.create_dataset("pages_holes", (2600, 2), np.int16, chunks=(1, 2))
    d[2100:2103] = data[2100:2103]
    f.create_dataset("supers", data=data, chunks=(1, 2), maxshape=(None, 2))
    d = f.create_dataset("supers_holes", (9000, 2), np.int16, chunks=(1, 2), maxshape=(None, 2))
    d[8700:8702] = 5
    f.create_dataset("tree_deep", data=data, chunks=(1, 2), maxshape=(None, None))
    dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    dcpl.set_chunk((7, 4, 3))
    dcpl.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    d = h5py.h5d.create(f.id, b"implicit", h5py.h5t.STD_U16LE, h5py.h5s.create_simple((60, 9, 8)), dcpl)
    d.write(h5py.h5s.ALL, h5py.h5s.ALL, wide)
    f["contiguous"] = wide
    for i in range(30):
        f[f"many/{i:03d}"] = np.int8(i)
        f["many"].attrs[f"attribute {i:02d}"] = "value %d" % i
    f["soft"] = h5py.SoftLink("/contiguous")
    f["outside"] = h5py.ExternalLink("other.h5", "/x")
    f["strings"] = [str(i) for i in range(60)]


def mixed(f):
    """What is no field, beside what is; and second names of datasets and groups."""
    n = 12
    f["a"] = np.arange(n)
    f["empty"] = h5py.Empty("f4")
    f["boxes"] = np.zeros(n, [("x", "f4"), ("y", "i2")])
    f.create_dataset("object", (n,), dtype=h5py.ref_dtype)
    f["mean"] = np.zeros(3, np.float32)
    f["version"] = 3
    f["more/images"] = ramp((n, 2, 2), np.uint8)
    f["more/b"] = np.arange(n) * 2
    f["b"] = f["more/b"]
    f["linked"] = h5py.SoftLink("/more")


def tables(f):
    """Nothing that can be read has as many rows as most has."""
    for name in ("t1", "t2"):
        f[name] = np.zeros(9, [("x", "f4"), ("y", "i2")])
    f["mean"] = np.zeros(3, np.float32)


def shard(part):
    def write(f):
        f.create_dataset("x", data=ramp((13 + part, 5), np.float32, 1 + part), chunks=(4 + part, 5), compression=[None, "gzip", "lzf"][part])
        f["y"] = np.arange(13 + part) + 100 * part

    return write


FILES = {
    "plain": (plain, {}),
    "filters": (filters, {}),
    "types": (types, {}),
    "refused": (refused, {}),
    "groups": (groups, {}),
    "groups_latest": (groups, dict(libver="latest")),
    "groups_ordered": (groups, dict(track_order=True)),
    "chunk_orders": (chunk_orders, {}),
    "sparse": (sparse, {}),
    "sparse_latest": (sparse, dict(libver="latest")),
    "latest": (latest, dict(libver="latest")),
    "types_latest": (types, dict(libver="latest")),
    "userblock": (plain, dict(userblock_size=1024)),
    "mixed": (mixed, {}),
    "tables": (tables, {}),
    "shard0": (shard(0), {}),
    "shard1": (shard(1), {}),
    "shard2": (shard(2), dict(libver="latest")),
}


def row_bytes(v):
    if isinstance(v, str):
        return v.encode()
    if isinstance(v, bytes):
        return v
    a = np.asarray(v)
    if a.dtype.kind in "SV" and a.dtype.fields is None:
        return a.tobytes().rstrip(b"\0")
    return a.astype(a.dtype.newbyteorder("<"), order="C").tobytes()


def describe(d):
    out = {"dtype": str(d.dtype), "shape": list(d.shape)}
    if d.shape:
        seen = hashlib.sha256()
        for i in range(d.shape[0]):
            row = row_bytes(d[i])
            seen.update(b"%d " % len(row) + row)
        out["sha256"] = seen.hexdigest()
    if d.chunks:
        out["chunk"] = list(d.chunks)
        places = []
        d.id.chunk_iter(lambda c: places.append((tuple(c.chunk_offset), c.byte_offset, c.size, c.filter_mask)))
        seen = hashlib.sha256()
        for at, off, size, mask in sorted(places):
            seen.update(f"{','.join(map(str, at))} {off} {size} {mask}\n".encode())
        # HDF5 1.14.6 tells wrong coordinates where only another dimension than the
        # first one is endless; its data is right.
        if d.maxshape[0] is None or None not in d.maxshape:
            out["chunks"], out["places"] = len(places), seen.hexdigest()
    elif d.id.get_offset() is not None:
        out["offset"] = d.id.get_offset()
    return out


def main(files=FILES, to="want.json"):
    want = {}
    folder = tempfile.mkdtemp()
    for name, (write, kw) in files.items():
        path = os.path.join(folder, name + ".h5")
        with h5py.File(path, "w", **kw) as f:
            write(f)
        with h5py.File(path, "r") as f:
            found = {}

            def visit(at, what):
                if isinstance(what, h5py.Dataset) and name not in ("refused", "mixed", "tables", "large_2") and what.shape != ():
                    found[at] = describe(what)

            f.visititems(visit)
            want[name] = found
        with open(path, "rb") as raw, open(os.path.join(HERE, name + ".h5.gz"), "wb") as packed:
            with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, compresslevel=9) as out:
                out.write(raw.read())
    with open(os.path.join(HERE, to), "w") as f:
        f.write("{\n")
        f.write(",\n".join(f' "{k}": {{\n' + ",\n".join(f"  {json.dumps(p)}: {json.dumps(d)}" for p, d in v.items()) + "\n }" for k, v in want.items()))
        f.write("\n}\n")


if __name__ == "__main__":
    main()
