"""Writes imagefolder.json: what torchvision's ImageFolder makes of odd trees.

    python make.py

Names are percent-encoded bytes, because some are no UTF-8. The Go test builds
the same trees and must find the same classes and samples, in the same order.
"""

import json
import os
import tempfile
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote_to_bytes

from torchvision.datasets import ImageFolder

# "path" is an empty file, "path/" a folder, "path -> target" a link.
TREES = {
    "plain": ["cat/1.jpg", "cat/2.jpg", "dog/1.png", "ant/z.webp", "ant/a.tif"],
    "order": [
        "a/b/1.jpg", "a/b-c/1.jpg", "a/b.d/1.jpg", "a/b/c/1.jpg", "a/b0/1.jpg", "a/2.jpg", "a/10.jpg", "a/B.jpg",
        "a-b/1.jpg", "B/1.jpg", "b/1.jpg", "%C3%A9/1.jpg", "e/1.jpg", "z/1.jpg", "%F0%9F%98%80/1.jpg", "%EF%BF%BD/1.jpg", "%EE%80%80/1.jpg",
    ],
    "bytes that are no text": [
        "%FF/1.jpg", "%C3%A9/1.jpg", "%ED%9F%BF/1.jpg", "%EE%80%80/1.jpg", "a/%80.jpg", "a/%C3.jpg", "a/%C3%A9.jpg", "a/%EE%80%80.jpg",
        "a/%F0%9F.jpg", "a/%F0%9F%98%80.jpg", "a/%E2%82%AC.jpg", "a/%E2%82.jpg", "a/%ED%A0%80.jpg", "a/x%FF/1.jpg", "a/x%C3%A9/1.jpg",
    ],
    "extensions": [
        "a/1.JPG", "a/2.Jpeg", "a/3.jpg.txt", "a/4.jpgx", "a/5", "a/.jpg", "a/6.tar.jpg", "a/7.PgM", "a/8.gif", "a/9.TIFF", "a/10.ppm", "a/11.bmp",
        "a/jpg", "a/12.jpg ", "a/13..jpg", "a/%C4%B0.jpg",
    ],
    "hidden": [".git/x.jpg", "a/.hidden.jpg", "a/.cache/y.jpg", "__MACOSX/._1.jpg", "a/1.jpg", "loose.jpg"],
    "deep": ["a/1/2/3/4/5/6.jpg", "a/1/2/x.jpg", "a/1/2/3/x.jpg", "a/empty/", "b/c/", "b/x.jpg"],
    "links": [
        "a/1.jpg", "b/1.jpg", "store/sub/2.jpg", "store/3.jpg", "a/linked -> ../store/sub", "c -> store", "a/file.jpg -> ../store/3.jpg",
        "a/broken.jpg -> nowhere", "broken -> nowhere", "a/folder.jpg -> ../store",
    ],
    "folder like an image": ["a/x.jpg/1.jpg", "a/x.png/", "a.jpg/1.jpg"],
    "not allowed: empty class": ["a/1.jpg", "b/"],
    "not allowed: only other files": ["a/1.txt"],
    "not allowed: no class": ["1.jpg", "2.jpg"],
    "allow_empty": ["a/1.jpg", "b/", "c/x/y/"],
}


def build(root: bytes, tree: list[str]) -> None:
    for entry in tree:
        name, _, target = entry.partition(" -> ")
        path = os.path.join(root, unquote_to_bytes(name))
        if name.endswith("/"):
            os.makedirs(path, exist_ok=True)
            continue
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if target:
            os.symlink(unquote_to_bytes(target), path)
        else:
            Path(os.fsdecode(path)).touch()


def look(tree: list[str], allow_empty: bool) -> dict:
    with tempfile.TemporaryDirectory() as root:
        build(os.fsencode(root), tree)
        try:
            found = ImageFolder(root, allow_empty=allow_empty)
        except FileNotFoundError:
            return {"tree": tree, "allow_empty": allow_empty, "error": True}
        return {
            "tree": tree,
            "allow_empty": allow_empty,
            "classes": [quote_from_bytes(os.fsencode(c)) for c in found.classes],
            "samples": [[quote_from_bytes(os.fsencode(os.path.relpath(p, root))), label] for p, label in found.samples],
        }


def main() -> None:
    golden = {name: look(tree, name == "allow_empty") for name, tree in TREES.items()}
    out = Path(__file__).with_name("imagefolder.json")
    out.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
