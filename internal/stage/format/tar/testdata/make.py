"""Writes the shards here and webdataset.json: what WebDataset reads from them.

    pip install webdataset==1.0.2 zstandard lz4
    python make.py

Python's tarfile writes the shards in each of its formats; WebDataset's own
functions read them. Names are percent-encoded bytes. packed.json is SHA-256 sums
of the members of the packed shards, which all hold the same.
"""

import gzip
import hashlib
import io
import json
import struct
import tarfile
from pathlib import Path
from urllib.parse import quote_from_bytes

import lz4.frame
import zstandard
from webdataset.tariterators import group_by_keys, tar_file_expander

HERE = Path(__file__).parent
LONG = "deep/" * 30 + "n" * 120  # fits no ustar name


def plain() -> list[tuple[str, bytes]]:
    return [(f"{i:04d}.{ext}", f"{i} as {ext}".encode()) for i in range(4) for ext in ("jpg", "cls", "json")]


def odd() -> list[tuple[str, bytes]]:
    return [
        ("train/a.b/0001.JPG", b"upper case"),
        ("train/a.b/0001.Seg.PNG", b"two dots"),
        ("train/a.b/0001.", b"a dot and nothing"),
        ("./dot/2.jpg", b"begins with a dot"),
        ("./dot/2.cls", b""),
        ("no_extension", b"has no dot"),
        ("a.b/no_extension", b"a dot in the folder only"),
        ("__meta__", b"metadata"),
        ("__index__/x.jpg", b"metadata too"),
        ("__half.jpg", b"data"),
        ("x__.jpg", b"data"),
        ("größe/ключ.jpg", "юникод".encode()),
        ("größe/ключ.cls", b"7"),
        ("spaces in it .jpg", b"spaces"),
        ("a//b.jpg", b"two slashes"),
        ("big.bin", bytes(range(256)) * 8),
    ]


def long() -> list[tuple[str, bytes]]:
    return [
        (LONG + ".jpg", b"long"),
        (LONG + ".cls", b"1"),
        ("d" * 90 + "/" + "e" * 90 + ".jpg", b"prefix"),
        ("short.jpg", b"short"),
        ("é" * 80 + ".jpg", b"long and no ASCII"),
    ]


def write(name: str, members: list[tuple[str, bytes]], form: int, extras: bool = False, **kw) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, **kw) as tar:
        if extras:
            entry = tarfile.TarInfo("folder.jpg")
            entry.type = tarfile.DIRTYPE
            tar.addfile(entry)
        for i, (path, data) in enumerate(members):
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            entry.mtime = 0.5 if form == tarfile.PAX_FORMAT else 0
            tar.addfile(entry, io.BytesIO(data))
            if extras and i == 0:  # between two members of one sample
                for kind, typ in (("link", tarfile.SYMTYPE), ("hard", tarfile.LNKTYPE), ("pipe", tarfile.FIFOTYPE)):
                    entry = tarfile.TarInfo(kind + ".jpg")
                    entry.type, entry.linkname = typ, "0000.jpg" if typ != tarfile.SYMTYPE else LONG
                    tar.addfile(entry)
    (HERE / name).write_bytes(out.getvalue())


def read(name: str) -> list[dict]:
    with open(HERE / name, "rb") as stream:
        samples = list(group_by_keys(tar_file_expander([{"url": name, "stream": stream}])))
    out = []
    for s in samples:
        fields = {k: v.decode("latin-1") for k, v in s.items() if not k.startswith("__")}
        out.append({"key": quote_from_bytes(s["__key__"].encode("utf-8", "surrogateescape")), "fields": fields})
    return out


def seekable(frames: list[tuple[bytes, int]]) -> bytes:
    """Zstandard's seekable format, 0.1.0: frames, and a table of them in a frame to be skipped."""
    table = b"".join(struct.pack("<II", len(f), n) for f, n in frames)
    table += struct.pack("<IBI", len(frames), 0, 0x8F92EAB1)
    return b"".join(f for f, _ in frames) + struct.pack("<II", 0x184D2A5E, len(table)) + table


def packed() -> None:
    members = []
    page = b"".join(b"%d %d|" % (i, i * i) for i in range(300))
    for i in range(24):
        members.append((f"{i:04d}.txt", (b"sample %d " % i + page) * 25))
        members.append((f"{i:04d}.json", json.dumps({"i": i}).encode()))
        members.append((f"{i:04d}.pyd", b"no pickle"))
    write("large.tar", members, tarfile.PAX_FORMAT)
    large = (HERE / "large.tar").read_bytes()
    (HERE / "large.tar").unlink()
    parts = [large[i : i + 300_000] for i in range(0, len(large), 300_000)]
    zstd = zstandard.ZstdCompressor(level=12, write_checksum=True)
    lz = {"compression_level": 9, "content_checksum": True}
    for name, data in {
        "large.tar.gz": gzip.compress(large, mtime=0),
        "members.tgz": b"".join(gzip.compress(p, mtime=0) for p in parts),
        "large.tar.zst": zstd.compress(large),
        "frames.tar.zst": seekable([(zstd.compress(p), len(p)) for p in parts]),
        "large.tar.lz4": lz4.frame.compress(large, block_linked=True, store_size=False, **lz),
        "alone.tar.lz4": lz4.frame.compress(large, block_linked=False, block_checksum=True, **lz),
    }.items():
        (HERE / name).write_bytes(data)
    sums = {path: hashlib.sha256(data).hexdigest() for path, data in members}
    (HERE / "packed.json").write_text(json.dumps(sums, indent=1) + "\n")


def main() -> None:
    gnu, pax, ustar = tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT
    write("plain-ustar.tar", plain(), ustar)
    write("plain-extras.tar", plain(), gnu, extras=True)
    write("odd-gnu.tar", odd(), gnu)
    write("odd-pax.tar", odd(), pax)
    write("long-gnu.tar", long(), gnu)
    write("long-pax.tar", long(), pax)
    write("global-pax.tar", plain(), pax, pax_headers={"comment": "for all", "mtime": "1"})
    write("no-text-gnu.tar", [("\udcff\udc80.jpg", b"1"), ("\udcff\udc80.cls", b"2"), ("\udcff.jpg", b"3")], gnu, errors="surrogateescape")
    golden = {p.name: read(p.name) for p in sorted(HERE.glob("*.tar"))}
    (HERE / "webdataset.json").write_text(json.dumps(golden, indent=1) + "\n")
    packed()


if __name__ == "__main__":
    main()
