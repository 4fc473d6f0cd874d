"""The figures of the docs are those of bench/results: text and JSON change together or not at all."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from conftest import TOP

sys.path.insert(0, str(TOP))
from bench.figures import main


def figures(root: Path, *more: str) -> tuple[int, str]:
    """What `python -m bench.figures` ends with and says."""
    said = io.StringIO()
    with mock.patch.object(sys, "argv", ["figures", "--root", str(root), *more]), contextlib.redirect_stderr(said):
        return main(), said.getvalue()


def test_every_figure_of_the_docs_is_that_of_its_result() -> None:
    status, said = figures(TOP)
    assert status == 0, said


RESULT: dict[str, Any] = {
    "machine": {"cpu": "a processor", "commit": "0123abc", "date": "2026-11-22", "changed_files": 0},
    "disturbed": {"most": 0.01, "limit": 0.03},
    "gates": [],
    "doubts": [],
    "figures": {"over tf.data, CPU": 2.2871, "images per CPU-second": 1616.4},
}
PAGE = """# A page

It is [2.29](bench/results/loaders.json#over-tf.data-cpu) times as fast, at
[1,616](bench/results/loaders.json#images-per-cpu-second) images, and waits 5 seconds at most.

```
a sample took 3.4 ms
```
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout with one result and one page that cites it."""
    (tmp_path / "bench" / "results").mkdir(parents=True)
    (tmp_path / "README.md").write_text(PAGE)
    (tmp_path / "bench" / "stated.json").write_text(json.dumps({"README.md": ["5 seconds"]}))
    result(tmp_path, RESULT)
    return tmp_path


def result(tree: Path, content: dict[str, Any]) -> None:
    (tree / "bench" / "results" / "loaders.json").write_text(json.dumps(content))


def page(tree: Path, old: str, new: str) -> None:
    text = (tree / "README.md").read_text()
    assert old in text
    (tree / "README.md").write_text(text.replace(old, new))


def test_text_and_result_that_agree(tree: Path) -> None:
    assert figures(tree) == (0, "")


def test_a_result_changed_without_the_text(tree: Path) -> None:
    result(tree, {**RESULT, "figures": {**RESULT["figures"], "over tf.data, CPU": 2.31}})
    status, said = figures(tree)
    assert status == 1
    assert "says 2.29, but loaders.json has 2.31 for over-tf.data-cpu" in said


def test_text_changed_without_the_result(tree: Path) -> None:
    page(tree, "[1,616]", "[1,700]")
    status, said = figures(tree)
    assert status == 1
    assert "says 1,700, but loaders.json has 1,616" in said


def test_write_puts_the_results_into_the_text(tree: Path) -> None:
    result(tree, {**RESULT, "figures": {"over tf.data, CPU": 2.304, "images per CPU-second": 998.7}})
    assert figures(tree, "--write") == (0, "")
    text = (tree / "README.md").read_text()
    assert "[2.30](" in text
    assert "[999](" in text
    assert figures(tree) == (0, "")


@pytest.mark.parametrize(
    "sentence",
    ["It is 2.3 times as fast.", "4 % less.", "It takes 30 to 40 us.", "2.3x", "8,054 samples a second", "0.12 s"],
)
def test_a_figure_that_nothing_backs(tree: Path, sentence: str) -> None:
    (tree / "README.md").write_text(f"{PAGE}\n{sentence}\n")
    status, said = figures(tree)
    assert status == 1
    assert "is linked to no result" in said


def test_a_link_to_what_is_not_measured(tree: Path) -> None:
    page(tree, "#over-tf.data-cpu", "#over-dali-cpu")
    status, said = figures(tree)
    assert status == 1
    assert "loaders.json has no figure over-dali-cpu" in said


def test_a_listed_figure_that_the_page_no_longer_has(tree: Path) -> None:
    page(tree, "5 seconds", "a while")
    status, said = figures(tree)
    assert status == 1
    assert "no longer says '5 seconds'" in said


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"doubts": ["stoker at 1.06 of its own kernel"]}, "stoker at 1.06 of its own kernel"),
        ({"machine": {**RESULT["machine"], "changed_files": 2}}, "measured in a tree with 2 changed files"),
        ({"machine": {**RESULT["machine"], "commit": ""}}, "lacks commit"),
        ({"machine": None}, "does not say on which machine"),
    ],
)
def test_a_result_that_is_not_sound(tree: Path, change: dict[str, Any], problem: str) -> None:
    broken = {key: value for key, value in {**RESULT, **change}.items() if value is not None}
    result(tree, broken)
    status, said = figures(tree)
    assert status == 1
    assert problem in said
