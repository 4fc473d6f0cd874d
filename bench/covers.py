"""Which sources a run on a GPU has covered, and which of them have changed since.

Such a run cannot be repeated wherever stoker is built. So its result keeps a digest of each source that it depends on
(`digests`), and the table of the docs, which `bench.figures` makes, compares them with the sources there are: what has
changed is named or counted, and what has never run is listed as such.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

CLIENT = tuple(
    f"python/src/stoker/{name}.py"
    for name in [
        "_copies",
        "_cuda",
        "_device",
        "_device_jpeg",
        "_device_mix",
        "_device_ops",
        "_device_steps",
        "_fused",
        "_jax",
        "_moved",
        "_on_device",
        "_prefetch",
        "_queue",
        "_staging",
        "_static",
        "_target",
        "_triton",
        "_triton_rows",
    ]
)
TESTS = tuple(f"python/tests/gpu/test_gpu{part}.py" for part in ("", "_decode", "_train"))
BENCH = "bench/gpu.py"
NEVER = "not run on a GPU yet"
NAMED = 3  # sources that a line names; of more it gives their number


def digests(root: Path) -> dict[str, str]:
    """The digest of each source: of the client that deals with a device, of the tests, and of the benchmark."""
    return {name: hashlib.sha256((root / name).read_bytes()).hexdigest()[:16] for name in (*CLIENT, *TESTS, BENCH)}


def tests(root: Path) -> list[tuple[str, str]]:
    """The tests of a GPU, in their order, each with its file."""
    found = []
    for file in TESTS:
        tree = ast.parse((root / file).read_text(encoding="utf-8"))
        names = [one.name for one in tree.body if isinstance(one, ast.FunctionDef)]
        found += [(file, name) for name in names if name.startswith("test_")]
    return found


def outcome(cases: list[str]) -> str:
    """What became of the cases of a test: the first that is bad, or how many passed, and how many could not run."""
    if bad := [one for one in cases if one not in ("passed", "not run")]:
        cases = [bad[0]] * len(cases)
    counts = {kind: cases.count(kind) for kind in sorted(set(cases), reverse=True)}
    return ", ".join(f"{kind} ({n} cases)" if len(cases) > 1 else kind for kind, n in counts.items())


def lines(root: Path, ran: Mapping[str, Any], measured: Mapping[str, Any], wanted: Iterable[str]) -> list[list[str]]:
    """A line for each test and each figure: what, the result, where it ran, and what has changed since."""
    now = digests(root)

    def where(document: Mapping[str, Any], what: str) -> list[str]:
        machine = document["machine"]
        covered = machine["sources"]
        of = (*CLIENT, what)
        old = [f"`{Path(name).name}`" for name in of if covered.get(name) != now[name]]
        named = ", ".join(old) if len(old) <= NAMED else f"{len(old)} of {len(of)} files"
        since = f"changed since: {named}" if old else "unchanged"
        return [f"{machine['device']}, {machine['date'][:10]}, {machine['commit'][:8]}", since]

    outcomes: dict[tuple[str, str], list[str]] = {}
    for node, one in ran["tests"].items():
        where_from, _, test = node.partition("::")
        outcomes.setdefault((Path(where_from).name, test.partition("[")[0]), []).append(one["outcome"])
    found = []
    for file, name in tests(root):
        label, each = name.removeprefix("test_").replace("_", " "), outcomes.get((Path(file).name, name), [])
        if each:
            found.append([label, outcome(each), *where(ran, file)])
        else:
            found.append([label, NEVER, "", ""])
    for name in wanted:
        value = measured["figures"].get(name)
        found.append([name, NEVER, "", ""] if value is None else [name, f"{abs(value):.2f}", *where(measured, BENCH)])
    return found
