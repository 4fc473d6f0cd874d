"""What tools/words.py refuses, and what it does not."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from conftest import TOP


@pytest.fixture(scope="module")
def words() -> Any:
    spec = importlib.util.spec_from_file_location("words", TOP / "tools" / "words.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("the Spec can not be read", ["can not"]),
        ("// what can\n// not be read", ["can // not"]),
        ("# it is\n    # no number", ["is # no"]),
        ("it was cut behind a member", ["behind"]),
        ("loads training data as they lie", ["as they lie"]),
        ("tag 273 stands there twice; a file lies beside it", ["lies", "stands"]),
        ("refuses what goes not together", ["goes not"]),
        ("The number Can Not be found", ["Can Not"]),
    ],
)
def test_refused(words: Any, text: str, want: list[str]) -> None:
    assert sorted(found for _, found, _ in words.places(text, words.allowed())) == sorted(want)


@pytest.mark.parametrize(
    "text",
    [
        "it cannot be read",
        "there is no field of this name, and there are\n// no others",
        "a header that lies, and a header lies about its size",
        "the loop falls behind the trainer",
        "it is no longer there; NaN stands for what is missing",
        "a can-not, believes, understands, relies",
    ],
)
def test_right(words: Any, text: str) -> None:
    assert list(words.places(text, words.allowed())) == []


def test_lines_are_those_of_the_file(words: Any) -> None:
    text = "one\ntwo can not\nthree is\n\nfour lies"
    assert [line for line, *_ in words.places(text, [])] == [2, 5]


def test_one_place_fails(words: Any, monkeypatch: Any, capsys: Any) -> None:
    for places, status in (([], 0), ([("a/x.go", 7, "is no", "is not a")], 1)):
        monkeypatch.setattr(words, "found", lambda _, places=places: iter(places))
        assert words.main([]) == status
    assert capsys.readouterr().out == 'a/x.go:7: "is no": write is not a\n'
