"""Datasets that only look up rows of arrays: no workers, and the batches that torch's DataLoader gives."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from forms import mostly, thinned
from torch.utils.data import ConcatDataset, DataLoader, SequentialSampler, StackDataset, Subset, TensorDataset

import stoker

A = torch.arange(400 * 4).view(400, 4).float()
B = torch.arange(400)
N = np.arange(400 * 3, dtype=np.float32).reshape(400, 3)

CASES: dict[str, Any] = {
    "tensors": TensorDataset(A, B),
    "tensor": A,
    "numbers": B,
    "array": N,
    "scalars": np.arange(400),
    "subset": Subset(TensorDataset(A, B), [*range(0, 300, 3), -1]),
    "subset of an array": Subset(N, np.arange(5, 300)),  # type: ignore[arg-type]
    "subset of a subset": Subset(Subset(A, range(0, 400, 2)), [3, 5, 7] * 30),  # type: ignore[arg-type]
    "stack": StackDataset(A, B),  # type: ignore[arg-type]
    "stack of names": StackDataset(x=A, y=TensorDataset(B)),  # type: ignore[arg-type]
    "types": TensorDataset(A.bfloat16(), A.bool(), A.half(), A.to(torch.complex64)),
}
KEYWORDS: list[dict[str, Any]] = [
    {"batch_size": 8},
    {"batch_size": 64, "drop_last": True},
    {"batch_size": 16, "sampler": "sequential"},
    {"batch_size": 300},
]


def looked_up(loader: Any) -> bool:
    return bool(loader._settings.hands.lookup)


def values(batch: Any) -> list[Any]:
    return list(batch.values()) if isinstance(batch, dict) else batch if isinstance(batch, list) else [batch]


@thinned
@pytest.mark.parametrize("keywords", KEYWORDS, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_the_same_as_torch(case: str, keywords: dict[str, Any]) -> None:
    data = CASES[case]
    if "sampler" in keywords:
        keywords = {**keywords, "sampler": SequentialSampler(data)}
    want = list(DataLoader(data, **keywords))
    for workers in (0, 2):
        loader = stoker.DataLoader(data, num_workers=workers, **keywords)
        assert looked_up(loader)
        got = list(loader)
        assert repr(got) == repr(want)
        first, other = (values(batch) for batch in (got[0], want[0]))
        assert [type(value) for value in first[:1]] == [type(value) for value in other[:1]]


@pytest.mark.parametrize(
    "case",
    mostly([case for case in CASES if case != "types"], "tensors", "scalars", "subset of an array", "stack of names"),
)
def test_numpy(case: str) -> None:
    keywords: dict[str, Any] = {"batch_size": 16, "num_workers": 2, "output": "numpy"}
    loader, other = (stoker.DataLoader(CASES[case], **{**keywords, "native": native}) for native in (None, False))
    assert looked_up(loader)
    assert not looked_up(other)
    assert repr(list(loader)) == repr(list(other))


def test_order_states_and_receipts_are_those_of_workers() -> None:
    keywords: dict[str, Any] = {"batch_size": 7, "shuffle": True, "seed": 3, "num_workers": 2}
    loader, other = (stoker.DataLoader(CASES["tensors"], **keywords, native=native) for native in (None, False))
    got = []
    for step, batch in enumerate(loader):
        got.append(batch)
        assert batch.step == step
        assert loader.facts is not None
        assert torch.equal(loader.facts.ids, batch[1])
        if step == 20:
            state = loader.state_dict()
    assert repr(got) == repr(list(other))
    assert loader.receipt() == other.receipt()
    for again in (other, stoker.DataLoader(CASES["tensors"], **keywords)):
        again.load_state_dict(state)
        assert repr(list(again)) == repr(got[21:])


def test_explain_says_what_runs_where() -> None:
    told = stoker.DataLoader(CASES["tensors"], batch_size=7).explain(2)
    assert [row["sample"] for row in told["rows"]] == [*range(14, 21)]
    assert told["python"].startswith("native, without workers: ")
    told = stoker.DataLoader(Renamed(A, B), batch_size=7, num_workers=2).explain(2)
    assert told["python"].startswith("2 Python workers (fork), because test_lookup.Renamed")


def test_a_batch_that_is_kept_never_changes() -> None:
    """Not even if many steps came in one message, and others are written to."""
    loader = stoker.DataLoader(CASES["tensors"], batch_size=8)
    kept = list(loader)
    for batch in kept[1::2]:
        batch[0].zero_()
    assert all(torch.equal(batch[0], A[batch[1]]) for batch in kept[::2])
    assert torch.equal(A, torch.arange(400 * 4).view(400, 4).float())


def test_changes_between_epochs() -> None:
    data = TensorDataset(A.clone(), B)
    loader = stoker.DataLoader(data, batch_size=8)
    list(loader)
    data.tensors = (A + 1, B)
    assert torch.equal(next(iter(loader))[0], A[:8] + 1)
    data.tensors = (A.clone().requires_grad_(), B)
    with pytest.raises(stoker.ConfigError, match="was changed after its loader was made"):
        iter(loader)


class Renamed(TensorDataset):
    pass


@pytest.mark.parametrize(
    ("data", "keywords"),
    [
        (Renamed(A, B), {}),
        (TensorDataset(A.clone().requires_grad_(), B), {}),
        (ConcatDataset([CASES["tensors"], CASES["tensors"]]), {}),
        (Subset(CASES["tensors"], [0, 400]), {"on_bad": "skip"}),
        (CASES["tensors"], {"batch_size": None}),
        (CASES["tensors"], {"collate_fn": list}),
        (CASES["tensors"], {"native": False}),
        (CASES["tensors"], {"worker_init_fn": print, "num_workers": 2}),
        (CASES["tensors"], {"sampler": [0, 1, 2]}),
        (TensorDataset(torch.zeros(40, 70_000)), {"num_workers": 2, "batch_size": 4}),
    ],
)
def test_what_is_not_looked_up(data: Any, keywords: dict[str, Any]) -> None:
    loader = stoker.DataLoader(data, **keywords)
    assert not looked_up(loader)
    next(iter(loader))


def test_rows_are_looked_up_where_torch_has_no_numpy() -> None:
    with mock.patch.object(torch.Tensor, "numpy", side_effect=RuntimeError("Numpy is not available")):
        loader = stoker.DataLoader(CASES["tensors"], batch_size=50)
        assert looked_up(loader)
        assert torch.equal(torch.cat([rows for rows, _ in loader]), A)


def test_large_rows_are_looked_up_without_workers() -> None:
    data = TensorDataset(torch.arange(40 * 70_000).view(40, 70_000))
    loader = stoker.DataLoader(data, batch_size=4)
    assert looked_up(loader)
    assert torch.equal(torch.cat([batch[0] for batch in loader]), data.tensors[0])


def test_large_batches_are_taken_when_they_are_asked_for() -> None:
    """As by torch without workers, and only one is in memory: not all that the engine has planned."""
    rows = torch.zeros(64, 3, 128, 128)
    for kind in (torch.utils.data.DataLoader, stoker.DataLoader):
        batches = iter(kind(torch.utils.data.TensorDataset(rows), batch_size=4))
        for step in range(16):
            rows.fill_(step)
            assert (next(batches)[0] == step).all()
