"""Packages that the tests and the benchmark of a GPU use, for a machine that has neither them nor a network.

    gpu_wheels.py get VERSION MACHINE FOLDER    downloads them for that Python (3.12) and machine (x86_64), and puts an
                                                archive of each into the folder
    gpu_wheels.py use FOLDER                    unpacks those that are missing here, and prints their paths, with colons

An archive is what pip would install, without what only video needs (torchcodec's libraries over FFmpeg, its sources).
"""

from __future__ import annotations

import importlib.util
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

# torchcodec decodes JPEGs; Kornia is compared with, and needs kornia_rs.
PACKAGES = {"torchcodec": "0.17.0", "kornia": "0.9.0", "kornia_rs": "0.2.0"}
LEFT_OUT = ("libtorchcodec_core", "libtorchcodec_custom_ops", "libtorchcodec_heic")
SOURCES = (".cpp", ".h", ".cu")
SYSTEMS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")


def get(version: str, machine: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, number in PACKAGES.items():
        out = folder / f"{name}-{number}-{version}-{machine}.tar.xz"
        if out.exists():
            continue
        with tempfile.TemporaryDirectory(prefix="stoker-wheels-") as temporary:
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
            command += ["--python-version", version, "--implementation", "cp", "-d", temporary]
            command += [word for system in SYSTEMS for word in ("--platform", f"{system}_{machine}")]
            subprocess.run([*command, f"{name}=={number}"], check=True)
            (wheel,) = Path(temporary).glob("*.whl")
            pack(wheel, out)


def pack(wheel: Path, out: Path) -> None:
    """Makes the archive of a wheel."""
    with tempfile.TemporaryDirectory(prefix="stoker-wheels-") as name:
        with zipfile.ZipFile(wheel) as file:
            file.extractall(name)
        part = out.with_suffix(".part")
        with tarfile.open(part, "w:xz") as archive:
            for path in sorted(Path(name).rglob("*")):
                if path.is_file() and not path.name.startswith(LEFT_OUT) and path.suffix not in SOURCES:
                    archive.add(path, path.relative_to(name))
        part.replace(out)


def use(folder: Path) -> list[Path]:
    """The paths of what was missing."""
    here = f"{sys.version_info[0]}.{sys.version_info[1]}-{platform.machine()}"
    found = []
    for archive in sorted(folder.glob("*.tar.xz")):
        name = archive.name.partition("-")[0]
        if importlib.util.find_spec(name) is not None:
            continue
        if not archive.name.endswith(f"-{here}.tar.xz"):
            print(f"{name} is missing, and {archive.name} is not for {here}", file=sys.stderr)
            continue
        where = folder / name
        if not where.exists():
            with tarfile.open(archive) as file:
                file.extractall(where, filter="data")
        found.append(where.resolve())
    return found


def main(words: list[str]) -> int:
    if len(words) == 4 and words[0] == "get":
        get(words[1], words[2], Path(words[3]))
    elif len(words) == 2 and words[0] == "use":
        print(":".join(map(str, use(Path(words[1])))))
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
