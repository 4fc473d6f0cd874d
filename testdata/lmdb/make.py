"""Writes the environments of this folder with the real library, and what lmdb
itself reads out of them (want.json: the
keys and values in the order of a cursor, as one SHA-256).

    python make.py        # needs: lmdb; gcc for the environment of other pages

Every file is gzipped: pages are half empty. Run it by hand, and keep the output.
"""

import gzip
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def noise(n, seed):
    """n bytes that do not depend on any library, and compress well."""
    return bytes((i // 64 * 31 + seed * 7) % 251 for i in range(n))


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def datum(c, h, w, data, label, encoded=False, floats=None, packed=True):
    """caffe.proto's Datum, in the order in which protobuf writes it."""
    out = b""
    if not encoded:
        out += b"\x08" + varint(c) + b"\x10" + varint(h) + b"\x18" + varint(w)
    if data is not None:
        out += b"\x22" + varint(len(data)) + data
    out += b"\x28" + varint(label & (1 << 64) - 1)
    if floats:
        body = struct.pack(f"<{len(floats)}f", *floats)
        if packed:
            out += b"\x32" + varint(len(body)) + body
        else:
            out += b"".join(b"\x35" + body[i : i + 4] for i in range(0, len(body), 4))
    return out + (b"\x38\x01" if encoded else b"")


def write(name, items, *, database=None, key_kind=None, more=None, read=None, commits=1, **kw):
    import lmdb

    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "data.mdb")
    env = lmdb.open(path, subdir=False, map_size=1 << 26, max_dbs=8, **kw)
    flags = {"integerkey": key_kind == "integer", "reverse_key": key_kind == "reverse"}
    db = env.open_db(database.encode() if database else None, **flags) if database or key_kind else None
    items = list(items)
    for part in range(commits):
        with env.begin(write=True, db=db) as txn:
            for k, v in items[part::commits]:
                txn.put(k, v)
    if more:
        more(env)
    seen, keys = hashlib.sha256(), []
    if read:
        db = env.open_db(read.encode())
    with env.begin(db=db) as txn:
        for k, v in txn.cursor():
            shown = str(int.from_bytes(k, "little")).encode() if key_kind == "integer" else k
            if v[:2] == b"\0\0" and len(v) == 48 or shown.startswith(b"__"):
                continue  # a database; a note
            seen.update(b"%d %s %d " % (len(shown), shown, len(v)) + v)
            keys.append(shown.decode("latin-1")[:16])
        stat = txn.stat(db) if db else env.stat()
    info = {"database": read or database or "", "depth": stat["depth"], "page": stat["psize"], "keys": len(keys)}
    info |= {"first": keys[:4], "last": keys[-2:], "sha256": seen.hexdigest()}
    env.close()
    with open(path, "rb") as f, open(os.path.join(HERE, name + ".mdb.gz"), "wb") as raw:
        with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, compresslevel=9) as out:
            shutil.copyfileobj(f, out)
    shutil.rmtree(folder)
    return info


def scattered(n):
    """0 to n-1 in an order in which pages split."""
    return [(i * 7919) % n for i in range(n)]


def named(env):
    for name in (b"train", b"val"):
        db = env.open_db(name)
        with env.begin(write=True, db=db) as txn:
            for i in range(40):
                txn.put(b"%s-%03d" % (name, i), noise(60 + i, i))


def beside(env):
    db = env.open_db(b"more")
    with env.begin(write=True, db=db) as txn:
        txn.put(b"x", b"y")


def removed(env):
    """What an environment looks like that has been in use: free pages, pages
    that were written again, values that grew and shrank."""
    for _ in range(3):
        with env.begin(write=True) as txn:
            for i in range(0, 600, 3):
                txn.delete(b"%05d" % i)
        with env.begin(write=True) as txn:
            for i in range(0, 600, 6):
                txn.put(b"%05d" % i, noise(i * 17 % 9000, i))


def every():
    yield "small", dict(items=[(b"k%d" % i, noise(i * 3, i)) for i in range(12)] + [(b"__len__", b"12")])
    yield "mixed", dict(items=[(b"%05d" % i, noise(i * 37 % 9000, i)) for i in scattered(211)])
    # Long keys make branches narrow: three levels and more from few samples.
    yield "deep", dict(items=[(b"%06d" % i + b"k" * 490, noise(5 + i % 9, i)) for i in scattered(1009)], commits=3)
    yield "used", dict(items=[(b"%05d" % i, noise(i * 11 % 5000, i)) for i in scattered(600)], more=removed, commits=4)
    yield "named", dict(items=[], more=named, read="val")
    yield "only", dict(items=[(b"%d" % i, noise(100 + i, i)) for i in range(20)], database="one")
    yield "beside", dict(items=[(b"a%02d" % i, noise(50 + i, i)) for i in range(9)], more=beside)
    yield "integer", dict(
        items=[(struct.pack("<Q", i * i * 1000), noise(30 + i * 200, i)) for i in range(30)], database="n", key_kind="integer"
    )
    yield "reverse", dict(items=[(b"%03d" % i, noise(30 + i, i)) for i in range(120)], database="r", key_kind="reverse")
    yield "datum_raw", dict(items=[(b"%08d" % i, datum(3, 4, 5, noise(60, i), i % 10)) for i in range(25)])
    jpg = open(os.path.join(HERE, "../photos/coffee.jpg"), "rb").read()[:1200]
    yield "datum_encoded", dict(items=[(b"%08d" % i, datum(0, 0, 0, jpg[: 900 + i], -i, encoded=True)) for i in range(8)])
    yield (
        "datum_float",
        dict(items=[(b"%08d" % i, datum(1, 2, 3, None, i, floats=[i + j / 8 for j in range(6)], packed=i % 2 == 0)) for i in range(6)]),
    )
    yield "empty", dict(items=[])


SHIM = r"""
#include <unistd.h>
#include <sys/syscall.h>
long sysconf(int name);
long __sysconf(int name);
long sysconf(int name) { return name == _SC_PAGESIZE ? 16384 : __sysconf(name); }
"""


def main():
    if sys.argv[1:] == ["pages16k"]:
        json.dump(write("pages16k", [(b"%05d" % i, noise(i * 137 % 40000, i)) for i in scattered(101)]), sys.stdout)
        return
    want = {}
    for name, how in every():
        want[name] = write(name, **how)
    # LMDB takes the page of the machine: one with pages of 16 KiB is imitated.
    folder = tempfile.mkdtemp()
    with open(folder + "/shim.c", "w") as f:
        f.write(SHIM)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", folder + "/shim.so", folder + "/shim.c"], check=True)
    out = subprocess.run([sys.executable, __file__, "pages16k"], env={**os.environ, "LD_PRELOAD": folder + "/shim.so"}, check=True, capture_output=True)
    want["pages16k"] = json.loads(out.stdout)
    assert want["pages16k"]["page"] == 16384, want["pages16k"]["page"]
    assert want["deep"]["depth"] >= 4, want["deep"]["depth"]

    import lmdb

    folder = tempfile.mkdtemp()
    env = lmdb.open(folder, map_size=1 << 20, max_dbs=2)
    with env.begin(write=True) as txn:
        db = env.open_db(b"d", txn, dupsort=True)
        for v in (b"1", b"2"):
            txn.put(b"k", v, db=db)
    env.close()
    with open(folder + "/data.mdb", "rb") as f, open(HERE + "/dupsort.mdb.gz", "wb") as raw:
        with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as out:
            out.write(f.read())
    with open(HERE + "/want.json", "w") as f:
        f.write("{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in want.items()) + "\n}\n")


main()
