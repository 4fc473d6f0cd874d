"""Installs a built wheel as a user would, and runs the README's script on it.

    wheel_test.py WHEEL PYTHON[:LIBRARY]...

Every PYTHON gets a virtual environment of its own outside the source tree, removed after its run. PYTHON is a version
(3.10: searched on PATH and in pyenv's folder) or a path. LIBRARY makes the arrays:

    torch-oldest, numpy-oldest    the oldest that the wheel's metadata accepts
    torch-newest, numpy-newest    the newest that pip finds; torch and numpy alone mean the same, and no LIBRARY numpy
    torch-2.4.1                   this version

A wheel of another architecture is driven by this machine's Python, its engine by qemu-user; pip installs it with
--platform, and never runs it. The steps, each with its time: the wheel alone (the promises that need neither torch nor
NumPy, the command), the library, README.md's script word for word, and the batches (tools/wheel_inside.py).
"""

from __future__ import annotations

import contextlib
import email
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
PHOTOS = sorted((TOP / "testdata/photos").glob("*.jpg"))
COPIES = 44  # of each photograph: a batch of 256 and a smaller one
NEEDS = {"torch": 8 << 30, "numpy": 300 << 20}  # bytes of disk, downloads included
# Of a job, and of where pip installs: the environments here say that themselves.
ELSEWHERE = ("RANK", "WORLD_SIZE", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER")

# SHA-256 over pixels, labels and ids of epoch 1 of the README's script, the same on every Python, library, processor
# and kernel. If pixels or the order change on purpose, take the new one from what this test prints.
DIGEST = "4bb4c590393f1a6e1385204b9d05143c26c12516b07ab4eee2994d3fca75f93b"


def stop(text: str) -> SystemExit:
    return SystemExit(f"wheel_test.py: {text}")


class Wheel:
    """A wheel's file, and what its metadata promise."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        if not path.is_file():
            raise stop(f"there is no wheel at {path}: run `make wheel`")
        self.machine = re.sub(r".*manylinux_\d+_\d+_(\w+)\.whl", r"\1", path.name)
        with zipfile.ZipFile(path) as file:
            names = file.namelist()
            info = next(name for name in names if name.endswith(".dist-info/METADATA"))
            self.metadata = email.message_from_bytes(file.read(info))
        folder = info.rpartition("/")[0]
        licences = (f"{folder}/licenses/LICENSE", f"{folder}/licenses/NOTICE")
        for name in ("stoker/py.typed", "stoker/_engine/stoker", "stoker/_engine/LIBRARIES", *licences):
            if name not in names:
                raise stop(f"{path.name} has no {name}")

    def oldest(self, library: str) -> str:
        """The oldest version that the metadata accept."""
        for needed in self.metadata.get_all("Requires-Dist", []):
            if found := re.match(rf"{library} *>= *([\d.]+) *;", needed):
                return found[1]
        raise stop(f"the metadata of {self.path.name} do not say which {library} is the oldest")


def python(asked: str) -> str:
    """The path of a Python, given as its version or its path."""
    if "/" in asked:
        if not os.access(asked, os.X_OK):
            raise stop(f"there is no Python at {asked}")
        return asked
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    known = [str(path) for path in (pyenv / "versions").glob(f"{asked}.*/bin/python")]
    if found := shutil.which(f"python{asked}"):
        known.insert(0, found)
    for path in known:  # pyenv leaves programs on PATH that only say that there is no such Python
        show = [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"]
        shown = subprocess.run(show, capture_output=True, text=True, check=False).stdout.split()
        if shown[:1] == [asked]:
            return shown[1]
    raise stop(
        f"Python {asked} is missing here: there is no python{asked} on PATH, and none below {pyenv}/versions. "
        f"Install it (`pyenv install {asked}`), or name the Pythons to test: "
        "tools/wheel_test.py WHEEL PYTHON[:LIBRARY]..."
    )


def readme() -> str:
    """The script of README.md."""
    text = (TOP / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^In a training script:\n\n```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    if found is None:
        raise stop("README.md has no block of Python after `In a training script:`")
    return found[1]


def prepare(folder: Path) -> None:
    """Puts the script, and the folder of photographs that it reads, into a folder."""
    script = readme()
    (folder / "train.py").write_text(script, encoding="utf-8")
    shutil.copy(TOP / "tools/wheel_inside.py", folder)
    where = re.search(r'ImageFolder\("([^"]+)"', script)
    if where is None:
        raise stop("README.md's script has no ImageFolder")
    for number, photo in enumerate(PHOTOS):
        kind = folder / where[1] / "abc"[number % 3]
        kind.mkdir(parents=True, exist_ok=True)
        first = kind / f"{photo.stem}-00.jpg"
        shutil.copy(photo, first)
        for copy in range(1, COPIES):
            os.link(first, kind / f"{photo.stem}-{copy:02}.jpg")


class Environment:
    """A virtual environment, and how commands run in it."""

    def __init__(self, wheel: Wheel, folder: Path) -> None:
        self.wheel = wheel
        self.folder = folder
        self.bin = folder / "venv/bin"
        keep = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("STOKER_", "PYTHON", "VIRTUAL_ENV")) and name not in ELSEWHERE
        }
        self.env = {**keep, "STOKER_CACHE": str(folder / "cache"), "PYTHONNOUSERSITE": "1"}
        self.took: list[tuple[str, float]] = []

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        seconds = time.monotonic() - began
        self.took.append((name, seconds))
        print(f"  {seconds:6.1f} s  {name}", flush=True)

    def run(self, *command: str | Path) -> str:
        """Output of a command, run in the folder."""
        words = [str(word) for word in command]
        done = subprocess.run(words, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise stop(f"{' '.join(words)}\n{done.stdout}{done.stderr}exited with {done.returncode}")
        return done.stdout

    def pip(self, *words: str) -> None:
        flags = ["-q", "--no-compile", "--disable-pip-version-check"]
        self.run(self.bin / "python", "-m", "pip", "install", *flags, *words)

    def install(self) -> None:
        if self.wheel.machine == platform.machine():
            self.pip(str(self.wheel.path))
            self.run(self.bin / "python", "-m", "pip", "check")
            return
        emulator = shutil.which(f"qemu-{self.wheel.machine}-static") or shutil.which(f"qemu-{self.wheel.machine}")
        if emulator is None:
            raise stop(f"qemu-{self.wheel.machine} is missing (Debian: qemu-user-static)")
        site = self.run(self.bin / "python", "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip()
        machine = f"manylinux_2_28_{self.wheel.machine}"
        self.pip("--platform", machine, "--only-binary=:all:", "--no-deps", "--target", site, str(self.wheel.path))
        shutil.copy(f"{site}/bin/stoker", self.bin / "stoker")
        engine = self.folder / "engine"
        engine.write_text(f'#!/bin/sh\nexec {emulator} {site}/stoker/_engine/stoker "$@"\n')
        engine.chmod(0o755)
        self.env["STOKER_ENGINE"] = str(engine)

    def command(self) -> None:
        """The command stoker, as the environment's own."""
        version = self.wheel.metadata["Version"]
        shown = self.run(self.bin / "stoker", "version")
        if not shown.startswith(f"stoker {version} "):
            raise stop(f"`stoker version` is not that of the wheel, {version}: {shown}")
        for part in ("libjpeg-turbo", "libwebp"):
            if f"{part} " not in shown:
                raise stop(f"the engine is built without {part}: `tools/setup.sh all` says what it takes")
        if "Usage: stoker doctor" not in self.run(self.bin / "stoker", "doctor", "--help"):
            raise stop("`stoker doctor --help` shows no usage")


def test(wheel: Wheel, base: str, kind: str, version: str, folder: Path) -> None:
    wanted = kind if version == "newest" else f"{kind}=={version}"
    here = Environment(wheel, folder)
    name = here.run(base, "-c", "import platform; print(platform.python_version())").strip()
    print(f"Python {name}, {wanted.replace('==', ' ')}, {wheel.machine}", flush=True)
    with here.step("make the virtual environment"):
        here.run(base, "-m", "venv", folder / "venv")
        prepare(folder)
    with here.step("pip install stoker"):
        here.install()
    inside = (here.bin / "python", "wheel_inside.py")
    with here.step("stoker without torch and NumPy"):
        here.run(*inside, "alone", wheel.metadata["Version"])
        here.command()
    with here.step(f"pip install {wanted}"):
        if wheel.machine == platform.machine():
            here.pip(f"{wheel.path}[{kind}]", wanted)
        else:
            here.pip(wanted)
    with here.step("README.md's script"):
        here.run(here.bin / "python", "train.py")
    with here.step("the batches"):
        said = json.loads(here.run(*inside, "batches", kind).splitlines()[-1])
    if said["digest"] != DIGEST:
        raise stop(f"epoch 1 of README.md's script has the digest {said['digest']}, not {DIGEST}")
    total = sum(seconds for _, seconds in here.took)
    print(f"  {total:6.1f} s  in all, with {kind} {said['version']}; epoch 1 is {DIGEST[:16]}", flush=True)


def main() -> None:
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    wheel = Wheel(Path(sys.argv[1]))
    todo = []
    for asked in sys.argv[2:]:  # what is missing is said before the first download
        which, _, library = asked.partition(":")
        kind, _, version = (library or "numpy").partition("-")
        version = version or "newest"
        if kind not in NEEDS:
            raise stop(f"{asked}: the library is torch or numpy, as in 3.10:torch-oldest")
        todo.append((python(which), kind, wheel.oldest(kind) if version == "oldest" else version))
    for base, kind, version in todo:
        folder = Path(tempfile.mkdtemp(prefix="stoker-wheel-"))
        try:
            free, needs = shutil.disk_usage(folder).free, NEEDS[kind]
            if free < needs:
                raise stop(f"{folder} has {free >> 20:,} MiB free; {kind} takes {needs >> 20:,}. Set TMPDIR")
            test(wheel, base, kind, version, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
