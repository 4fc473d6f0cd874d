"""Every back-quoted name in ARCHITECTURE.md and docs/decisions exists.

Names are files, folders, packages, identifiers, keys of a Spec, flags, targets of make and verbs of the command. The
form of a name decides how it is looked up. A name that exists elsewhere (a library, a format, the kernel) is in OTHERS;
keep that list short.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import TOP

PAGES = [TOP / "ARCHITECTURE.md", *sorted((TOP / "docs" / "decisions").glob("*.md"))]
OTHERS = {
    *("H5Dchunk_iter", "H5Dget_chunk_info(dataset, number)", "libhdf5-dev", "libhdf5.a"),  # HDF5
    *("MDB_WRITEMAP", "PowerDNS/lmdb-go", "apache/arrow-go"),  # LMDB, Arrow
    *("x/image/bmp", "x/image/webp"),  # Go libraries that were not taken
    *("-mtune=icelake-server", "packssdw", "preadv2"),  # gcc, x86, Linux
}
KEYS = {
    "dataset",
    "fields",
    "order",
    "batch",
    "mix",
    "cache",
    "fetch",
    "deliver",
    "on_bad",
}  # of a Spec, with keys below
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
QUOTED = re.compile(r"`([^`]+)`")
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SOURCES = {".go", ".py", ".c", ".h", ".sh", ".toml", ".mod"}
FILE = re.compile(r"[\w./*-]+\.(?:go|py|c|h|md|json|sh|mod|toml|npy|npz|yaml|mdb)")
IN_FILE = re.compile(r"([\w./]+\.(?:go|py|c|h)): (\w+)")
DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?:\(\))?")
TEST = re.compile(r"(?:Test|Benchmark|Fuzz)[A-Z]\w*")


@functools.cache
def tracked() -> list[str]:
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False).stdout.splitlines()
    if not listed:  # a tree without git: all but hidden folders and what make builds
        for folder, below, names in os.walk(TOP):
            below[:] = [name for name in below if not name.startswith(".") and name not in ("build", "dist")]
            listed += [(Path(folder) / name).relative_to(TOP).as_posix() for name in names]
    return [name for name in listed if (TOP / name).is_file()]


@functools.cache
def folders() -> set[str]:
    return {str(parent) for name in tracked() for parent in Path(name).parents} - {"."}


@functools.cache
def words(name: str) -> frozenset[str]:
    return frozenset(WORD.findall((TOP / name).read_text(encoding="utf-8", errors="replace")))


@functools.cache
def everywhere() -> frozenset[str]:
    own = "python/tests/test_names.py"
    sources = [name for name in tracked() if (Path(name).suffix in SOURCES or name == "Makefile") and name != own]
    return frozenset().union(*map(words, sources))


@functools.cache
def imports() -> str:
    """What Go files and go.mod files import, and where flags are written: their texts."""
    names = [name for name in tracked() if name.endswith((".go", "go.mod"))]
    return "\n".join((TOP / name).read_text(encoding="utf-8", errors="replace") for name in names)


def is_imported(name: str) -> bool:
    return name in imports() and bool(re.search(rf'[/" \t]{re.escape(name)}(?:/v\d+)?[" ]', imports()))


@functools.cache
def flags() -> frozenset[str]:
    """Flags of the command (docs/cli.md is held to its help) and those that scripts and benchmarks take."""
    names = [name for name in tracked() if Path(name).suffix in {".py", ".sh", ".c"} and "test_names" not in name]
    text = "\n".join((TOP / name).read_text(encoding="utf-8") for name in ["docs/cli.md", "Makefile", *names])
    return frozenset(re.findall(r"--?[a-z][\w-]*", text))


@functools.cache
def rooms() -> dict[str, list[frozenset[str]]]:
    """The words of Go packages and of Python modules, by their name; "" are all of them."""
    packages: dict[str, set[str]] = {}
    for name in tracked():
        if name.endswith(".go"):
            packages.setdefault(str(Path(name).parent), set()).update(words(name))
    found: dict[str, list[frozenset[str]]] = {"": []}
    for folder, known in packages.items():
        found.setdefault(Path(folder).name or "stoker", []).append(frozenset(known))
    for name in tracked():
        if name.endswith(".py") and not name.startswith("python/tests/"):
            found.setdefault(Path(name).stem, []).append(words(name))
    found.setdefault("stoker", []).extend([*found.get("", []), words("python/src/stoker/__init__.py")])
    found[""] = [room for name, of_name in found.items() if name for room in of_name]
    return found


@functools.cache
def endings() -> frozenset[str]:
    """The paths of all files and folders, and what follows each of their slashes."""
    paths = [*tracked(), *folders()]
    return frozenset(path[at:] for path in paths for at in [0, *(slash.end() for slash in re.finditer("/", path))])


def is_path(name: str) -> bool:
    """Whether a file or folder has this path, or a path that ends so."""
    name = re.sub(r"\b[A-Z]{4,}\b", "*", name.rstrip("/"))  # testdata/FORMAT/make.py
    if "*" not in name:
        return name in endings()
    return any(
        fnmatch.fnmatchcase(path, name) or fnmatch.fnmatchcase(path, "*/" + name) for path in [*tracked(), *folders()]
    )


def is_dotted(name: str) -> bool:
    """package.Name, module.Class.method or Type.Method: all parts in one package or module."""
    first, *rest = name.removesuffix("()").split(".")
    if first in KEYS and set(rest) <= words("internal/spec/spec.go") | words("internal/spec/access.go"):
        return True
    if first in rooms():
        return any(set(rest) <= room for room in rooms()[first])
    if first.startswith("_") and first[1:2].islower():
        return False  # a Python module that does not exist
    return any({first, *rest} <= room for room in rooms()[""])


def missing(name: str) -> str:
    """Why a name does not exist, "" if it does or is not a name."""
    if name in OTHERS or name.startswith(("/", "~", ".", "<")) or "::" in name:
        return ""
    if found := IN_FILE.fullmatch(name):
        files = [path for path in tracked() if path == found[1] or path.endswith("/" + found[1])]
        return "" if any(found[2] in words(path) for path in files) else f"{found[1]} has no {found[2]}"
    if TEST.fullmatch(name):
        return "" if name in everywhere() else "no such test"
    if name.startswith("make "):
        target = name.split()[1]
        return "" if re.search(rf"^{target}:", (TOP / "Makefile").read_text(), re.MULTILINE) else "no such target"
    if name.startswith("stoker ") and name.split()[1].isalpha() and name.split()[1].islower():
        verb = name.split()[1].capitalize()
        return "" if verb in words("cmd/stoker/main.go") else "no such verb"
    if FILE.fullmatch(name) or re.fullmatch(r"[a-z_]+(?:/[\w*-]+)+/?", name):
        of_format = Path(name).suffix in {".npy", ".npz", ".yaml", ".json", ".mdb"}  # also names of users' files
        return "" if is_path(name) or of_format or is_imported(name) else "no such file or folder"
    if DOTTED.fullmatch(name):
        return "" if is_dotted(name) else "no package or module has all of its parts"
    if unknown := sorted(set(re.findall(r"(?<![\w-])--[a-z][\w-]*", name)) - flags()):
        return f"no such flag as {', '.join(unknown)}"
    unknown = sorted(set(WORD.findall(name)) - everywhere())
    return f"nothing is called {', '.join(unknown)}" if unknown else ""


def quoted(text: str) -> set[str]:
    return {" ".join(name.split()) for name in QUOTED.findall(FENCE.sub("", text))}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_names_of_the_page_exist(page: Path) -> None:
    wrong = {name: why for name in quoted(page.read_text(encoding="utf-8")) if (why := missing(name))}
    assert not wrong


def test_others_are_still_needed() -> None:
    used = set().union(*(quoted(page.read_text(encoding="utf-8")) for page in PAGES))
    assert used >= OTHERS


@pytest.mark.parametrize(
    "name",
    [
        *("_engine.Engine", "_lease.ControlPage.give_back", "base/colour.h", "pass.go: nothing_there", "make nothing"),
        *("TestNothingOfTheKind", "stoker nothing", "--no-such-flag-here", "loader.NoSuchName", "internal/nothing"),
    ],
)
def test_a_name_that_does_not_exist_is_found(name: str) -> None:
    assert missing(name)
