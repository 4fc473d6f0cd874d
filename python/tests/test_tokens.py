"""Token files of language models: windows and documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import DATA
from forms import mostly
from reads import golden, in_order

import stoker
from stoker import Field

CASES = golden("tokens", "golden.json")
# Of every file and every option, the first case.
MET: set[str] = set()
FEW = []
for one in CASES:
    if not MET.issuperset(kinds := {Path(one["paths"][0]).stem, *one["options"]}):
        MET |= kinds
        FEW.append(one)


@pytest.mark.parametrize("case", mostly(CASES, *FEW), ids=lambda c: f"{c['paths'][0]}-{c['options']}")
def test_tokens(case: dict[str, Any]) -> None:
    options = dict(case["options"])
    follow = options.pop("next", False)
    found = stoker.TokenDataset(
        [DATA / "tokens" / path for path in case["paths"]], options.pop("window", None), next=follow, **options
    )
    assert found.fields == (["x", "y"] if follow else ["tokens"])
    got = in_order(found)
    for i, sample in enumerate(case["samples"]):
        tokens = np.array(sample, np.int64)
        want = [tokens[:-1], tokens[1:]] if follow else [tokens]
        assert [column[i] for column in got.values()] == [one.tobytes() for one in want]
    assert len(found) == len(case["samples"])
    as_stored = stoker.TokenDataset(
        [DATA / "tokens" / path for path in case["paths"]],
        case["options"].get("window"),
        next=False,
        out=None,
        **options,
    )
    with stoker.DataLoader(as_stored, 1, output="numpy") as loader:
        (tokens,) = next(iter(loader))
    assert str((tokens.values if isinstance(tokens, stoker.Ragged) else tokens).dtype) == case["dtype"]


def test_random_windows_begin_anywhere(tmp_path: Path) -> None:
    tokens = np.arange(1000, dtype=np.uint16)
    tokens.tofile(tmp_path / "train.bin")
    found = stoker.TokenDataset(tmp_path / "train.bin", 16, random=400, seed=7)
    assert len(found) == 400
    starts = []
    for x, y in map(found.__getitem__, range(0, 400, 4)):
        assert (x.numpy() == np.arange(16) + int(x[0])).all()
        assert (y == x + 1).all()
        starts.append(int(x[0]))
    assert 0 <= min(starts) < 100 < 800 < max(starts) <= 1000 - 17
    assert len(set(starts)) > 80
    again = stoker.TokenDataset(tmp_path / "train.bin", 16, random=400, seed=8)
    assert [int(again[i][0][0]) for i in range(0, 400, 4)] != starts
    every = stoker.TokenDataset(tmp_path / "train.bin", 16, stride=1)
    assert len(every) == 1000 - 16


def test_token_arguments_that_make_no_sense_are_one_error() -> None:
    path = DATA / "tokens/train.bin"
    for wrong in (
        {},
        {"length": 4, "documents": True},
        {"length": 0},
        {"length": 4, "stride": 2, "random": 5},
        {"length": 4, "seed": 2},
        {"documents": True, "random": 3},
    ):
        with pytest.raises(stoker.ConfigError, match="TokenDataset"):
            stoker.TokenDataset(path, **wrong)  # type: ignore[call-overload]
    with pytest.raises(stoker.ConfigError, match="eos"):
        stoker.TokenDataset(path, 4, eos=3)
    with pytest.raises(stoker.StokerError, match="window"):
        stoker.TokenDataset(path, 4096)
    with pytest.raises(stoker.StokerError, match="uint32"):
        stoker.TokenDataset(DATA / "tokens/llama.bin", 16)


def test_documents_are_padded() -> None:
    want = [np.array(s) for s in next(c for c in golden("tokens", "golden.json") if c["options"].get("eos"))["samples"]]
    fields = [Field("tokens", dtype="int32", batch="padded", value=-100)]
    found = stoker.TokenDataset(DATA / "tokens/train.bin", documents=True, eos=50256, fields=fields)
    with stoker.DataLoader(found, 5, output="numpy") as loader:
        ((tokens, lengths),) = loader
    assert lengths.tolist() == [len(one) for one in want]
    assert tokens.shape == (5, max(map(len, want)))
    for row, one in zip(tokens, want, strict=True):
        assert (row[: len(one)] == one).all()
        assert (row[len(one) :] == -100).all()
