"""What members of tar shards hold, by the suffixes of their fields, as in WebDataset.

``internal/stage/format/suffix/suffix.go`` is the same rule for the engine; ``testdata/suffixes.json`` checks both.
WebDataset reads and writes by two different lists: html, for example, is written as text and read as bytes.
"""

from __future__ import annotations

_READ = {
    **dict.fromkeys("jpg jpeg jpe jfif png ppm pgm pbm pnm webp gif bmp tif tiff".split(), "image"),
    **dict.fromkeys("cls cls2 index inx id".split(), "number"),
    **dict.fromkeys("txt text transcript".split(), "text"),
    **dict.fromkeys("json jsn".split(), "json"),
    "npy": "npy",
    **dict.fromkeys("pyd pickle pkl pth pt".split(), "pickle"),
    **dict.fromkeys("npz ten tb tenbin mp msg cbor".split(), "unbuilt"),
}
_WRITTEN = {
    **dict.fromkeys("jpg jpeg img image tif tiff pbm pgm ppm png".split(), "image"),
    **dict.fromkeys("cls cls2 class count index inx id".split(), "number"),
    **dict.fromkeys("txt text transcript html htm".split(), "text"),
    **dict.fromkeys("json jsn".split(), "json"),
    **dict.fromkeys("npy npz".split(), "npy"),
    **dict.fromkeys("pyd pickle pkl pth pt".split(), "pickle"),
    **dict.fromkeys("ten tenbin tb mp msgpack msg cbor".split(), "unbuilt"),
}


def suffix(field: str) -> str:
    """The part of a field's name that decides, in lower case."""
    return field.lower().rpartition(".")[2]


def read_as(field: str) -> str:
    """The kind of a field for a decoder: image, number, text, json, npy, pickle, unbuilt or bytes."""
    return _READ.get(suffix(field), "bytes")


def written_as(field: str) -> str:
    """The kind as which a value of a field is encoded."""
    return _WRITTEN.get(suffix(field), "bytes")
