"""Refuses an engine that needs anything of the system that it runs on.

    python3 tools/static.py ENGINE [MACHINE]

A wheel's tag promises systems of which the libraries are not known here, so its engine has neither an interpreter
(the loader of shared libraries) nor a NEEDED entry. It is one of MACHINE (x86_64 or aarch64), if that is given.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

MACHINES = {62: "x86_64", 183: "aarch64"}
LOAD, DYNAMIC, INTERP = 1, 2, 3  # program headers
NEEDED, STRTAB = 1, 5  # dynamic entries


def text(file: bytes, at: int) -> str:
    return file[at : file.index(b"\0", at)].decode()


def complaints(file: bytes, machine: str | None = None) -> list[str]:
    """What is wrong with a file as a wheel's engine."""
    if file[:6] != b"\x7fELF\x02\x01":
        return ["it is not a 64-bit little-endian ELF file"]
    found = []
    (built_for,) = struct.unpack_from("<H", file, 18)
    if machine and MACHINES.get(built_for) != machine:
        found.append(
            f"it is built for {MACHINES.get(built_for, f'machine {built_for}')}, not {machine}"
        )
    (start,) = struct.unpack_from("<Q", file, 32)
    size, count = struct.unpack_from("<HH", file, 54)
    headers = [
        struct.unpack_from("<IIQQQQ", file, start + i * size) for i in range(count)
    ]
    loads = [
        (address, offset, length)
        for kind, _, offset, address, _, length in headers
        if kind == LOAD
    ]
    for kind, _, offset, _, _, length in headers:
        if kind == INTERP:
            found.append(f"it has an interpreter, {text(file, offset)}")
        if kind == DYNAMIC:
            entries = [
                struct.unpack_from("<qQ", file, at)
                for at in range(offset, offset + length, 16)
            ]
            strings = next((value for tag, value in entries if tag == STRTAB), 0)
            inside = next(
                (o + strings - a for a, o, n in loads if a <= strings < a + n), 0
            )
            found += [
                f"it needs {text(file, inside + value)}"
                for tag, value in entries
                if tag == NEEDED
            ]
    return found


def main() -> None:
    engine = Path(sys.argv[1])
    found = complaints(engine.read_bytes(), *sys.argv[2:3])
    if any("interpreter" in f or "needs" in f for f in found):
        found.append(
            "`bash tools/setup.sh wheel` says which static libraries are missing"
        )
    if found:
        sys.exit(f"{engine} cannot be in a wheel: {'; '.join(found)}")


if __name__ == "__main__":
    main()
