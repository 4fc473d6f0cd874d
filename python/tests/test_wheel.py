"""What `make wheel` refuses (an engine that is not static, a source distribution), and its tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import TOP
from forms import long, mostly
from needs import needs


def static(engine: Path | str, *machine: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOP / "tools/static.py"), str(engine), *machine]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def elf(*headers: bytes, machine: int = 62, more: bytes = b"") -> bytes:
    """A 64-bit ELF file of program headers, which begin at byte 64, and what comes after them."""
    start = b"\x7fELF\x02\x01\x01".ljust(18, b"\0") + machine.to_bytes(2, "little")
    start = start.ljust(32, b"\0") + (64).to_bytes(8, "little")
    start = start.ljust(54, b"\0") + (56).to_bytes(2, "little") + len(headers).to_bytes(2, "little")
    return start.ljust(64, b"\0") + b"".join(headers) + more


def header(kind: int, offset: int, length: int) -> bytes:
    head = kind.to_bytes(4, "little") + b"\0" * 4
    return head + b"".join(n.to_bytes(8, "little") for n in (offset, offset, offset, length, length, 1))


def test_an_engine_is_static(tmp_path: Path) -> None:
    file = tmp_path / "engine"
    file.write_bytes(elf(header(1, 0, 4096)))
    assert static(file, "x86_64").returncode == 0
    wrong = static(file, "aarch64")
    assert wrong.returncode == 1
    assert "it is built for x86_64, not aarch64" in wrong.stderr

    at = 64 + 3 * 56
    loader = b"/lib/ld-linux.so.2\0"
    strings = b"\0libwebp.so.7\0"
    entries = [(1, 1), (5, at + len(loader)), (0, 0)]
    dynamic = b"".join(tag.to_bytes(8, "little") + value.to_bytes(8, "little") for tag, value in entries)
    headers = [header(1, 0, 4096), header(3, at, len(loader)), header(2, at + len(loader) + len(strings), len(dynamic))]
    file.write_bytes(elf(*headers, more=loader + strings + dynamic))
    wrong = static(file, "x86_64")
    assert wrong.returncode == 1
    assert "it has an interpreter, /lib/ld-linux.so.2; it needs libwebp.so.7" in wrong.stderr

    file.write_bytes(b"#!/bin/sh\n")
    assert "not a 64-bit little-endian ELF file" in static(file).stderr


@pytest.mark.parametrize("command", mostly(["sdist", "bdist_wheel"], "bdist_wheel"))
def test_what_cannot_be_built_says_so(command: str, tmp_path: Path) -> None:
    """There is no sdist, and no wheel without an engine."""
    needs("setuptools")
    run = [sys.executable, "setup.py", "-q", "egg_info", "-e", str(tmp_path), command, "-d", str(tmp_path / "dist")]
    done = subprocess.run(
        run,
        cwd=TOP / "python",
        env={"PATH": "/usr/bin:/bin", "STOKER_WHEEL_ENGINE": str(tmp_path / "none")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    said = {"sdist": "no source distribution: install a wheel, or build one", "bdist_wheel": "run `make engine`"}
    assert said[command] in done.stderr
    assert not (tmp_path / "dist").exists()


def test_metadata(tmp_path: Path) -> None:
    """A package index gets the readme, without links that lead nowhere there, and every Python that is supported."""
    needs("setuptools")
    run = [sys.executable, "setup.py", "-q", "egg_info", "-e", str(tmp_path)]
    subprocess.run(run, cwd=TOP / "python", check=True, capture_output=True)
    text = (tmp_path / "stoker.egg-info/PKG-INFO").read_text()
    for version in ("3.10", "3.11", "3.12", "3.13", "3.14"):
        assert f"Classifier: Programming Language :: Python :: {version}\n" in text
    for line in ("License-File: LICENSE", "License-File: NOTICE"):
        assert f"\n{line}\n" in text
    for extra in ("torch", "numpy", "gpu"):
        assert f"\nProvides-Extra: {extra}\n" in text
    assert '\nRequires-Dist: torchcodec>=0.17; extra == "gpu"\n' in text
    assert "Description-Content-Type: text/markdown" in text
    assert "# stoker" in text
    assert "](docs/" not in text
    assert "](bench/" not in text


def wheel_test(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOP / "tools/wheel_test.py"), *words]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False)


@long
def test_what_the_test_of_the_wheel_refuses(tmp_path: Path) -> None:
    """Before it installs anything: files that are missing, promises that are, and Pythons that are not here."""
    file = tmp_path / "stoker-1-py3-none-manylinux_2_28_x86_64.whl"
    info = "stoker-1.dist-info"
    assert "run `make wheel`" in wheel_test(str(file), "3.10").stderr
    members = {f"{info}/METADATA": "Version: 1\n", "stoker/_engine/stoker": "", f"{info}/licenses/LICENSE": ""}
    with zipfile.ZipFile(file, "w") as made:
        for name, text in members.items():
            made.writestr(name, text)
    assert "has no stoker/py.typed" in wheel_test(str(file), "3.10").stderr
    with zipfile.ZipFile(file, "a") as made:
        made.writestr("stoker/py.typed", "")
        made.writestr("stoker/_engine/LIBRARIES", "")
        made.writestr(f"{info}/licenses/NOTICE", "")

    # A program of that name that runs no such Python, as pyenv leaves them.
    shim = tmp_path / "python3.98"
    shim.write_text("#!/bin/sh\necho 'command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    done = wheel_test(str(file), "3.98:torch-oldest", PATH=f"{tmp_path}:{os.environ['PATH']}", PYENV_ROOT=str(tmp_path))
    assert done.returncode == 1
    assert "Python 3.98 is missing here" in done.stderr
    assert "pyenv install 3.98" in done.stderr
    assert "the library is torch or numpy" in wheel_test(str(file), f"{sys.executable}:jax").stderr
    assert "do not say which torch is the oldest" in wheel_test(str(file), f"{sys.executable}:torch-oldest").stderr


def test_the_readme_has_the_script(tmp_path: Path) -> None:
    """What `make wheel-test` runs is a whole script, with photographs where it reads them."""
    code = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[1]); "
        "import wheel_test; wheel_test.prepare(pathlib.Path(sys.argv[2]))"
    )
    subprocess.run([sys.executable, "-c", code, str(TOP / "tools"), str(tmp_path)], check=True)
    script = (tmp_path / "train.py").read_text()
    compile(script, "train.py", "exec")
    assert "for images, labels in loader:" in script
    photos = list((tmp_path / "data/train").glob("*/*.jpg"))
    assert 256 < len(photos) < 512


def test_notice() -> None:
    """Every section has its text, and there is what the LGPL asks for: its text, glibc's source, how to relink."""
    text = (TOP / "NOTICE").read_text(encoding="utf-8")
    head, *sections = re.split(r"^==== (.*)\n=+\n", text, flags=re.MULTILINE)
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        assert len(body.split()) > 50, title
    assert sections[-2] == "The GNU Lesser General Public License, version 2.1"
    assert "END OF TERMS AND CONDITIONS" in sections[-1]
    for words in ("stoker/_engine/LIBRARIES", "snapshot.debian.org/package/glibc", "make engine", "STOKER_ENGINE"):
        assert words in head
