"""output= over datasets of the user's own: arrays of that kind, wherever batches are made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from conftest import run_python
from forms import param
from needs import needs

import stoker


class Everything(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return {
            "tensor": torch.full((3,), index),
            "scalar": np.float32(index),
            "int": index,
            "text": str(index),
            "array": np.arange(2) + index,
            "nested": (torch.tensor(index), [index]),
        }


class Lists(Everything):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for inner in value.values() for leaf in leaves(inner)]
    if isinstance(value, (list, tuple)):
        return [leaf for inner in value for leaf in leaves(inner)]
    return [value]


def kinds(batch: Any) -> set[type]:
    return {type(leaf) for leaf in leaves(batch)} - {str}


@pytest.mark.parametrize("data", [Everything(), Lists()], ids=["samples", "lists"])
@pytest.mark.parametrize("workers", [0, 2])
def test_numpy(data: Any, workers: int) -> None:
    want = list(torch.utils.data.DataLoader(data, batch_size=5))
    got = list(stoker.DataLoader(data, batch_size=5, num_workers=workers, output="numpy"))
    assert kinds(got) == {np.ndarray}
    for one, other in zip(leaves(got), leaves(want), strict=True):
        if isinstance(other, str):
            assert one == other
        else:
            assert one.dtype == other.numpy().dtype
            assert np.array_equal(one, other.numpy())


@pytest.mark.parametrize("workers", [0, 2])
def test_single_samples(workers: int) -> None:
    sample = next(iter(stoker.DataLoader(Everything(), batch_size=None, num_workers=workers, output="numpy")))
    assert kinds(sample) == {np.ndarray, int}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_a_collate_function_decides_alone(output: Any, workers: int) -> None:
    def tensors(samples: list[Any]) -> Any:
        return torch.stack([sample["tensor"] for sample in samples])

    loader = stoker.DataLoader(Everything(), batch_size=4, num_workers=workers, output=output, collate_fn=tensors)
    assert kinds(list(loader)) == {torch.Tensor}
    assert loader.facts is not None
    assert type(loader.facts.ids) is (np.ndarray if output == "numpy" else torch.Tensor)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("output", ["numpy", "jax"])
def test_bfloat16(output: Any, workers: int) -> None:
    needs("jax")  # which brings ml_dtypes along
    data = [torch.tensor([1.5, -2.0], dtype=torch.bfloat16)] * 4
    context = "forkserver" if workers else None
    loader = stoker.DataLoader(data, batch_size=2, num_workers=workers, output=output, multiprocessing_context=context)
    for batch in loader:
        assert batch.dtype.name == "bfloat16"
        assert batch.tolist() == [[1.5, -2.0]] * 2


LACKS = """
import sys
sys.modules["ml_dtypes"] = None
import stoker
try:
    CALL
except stoker.ConfigError as error:
    print(error)
"""
LOADED = "import torch; data = [torch.zeros(2, dtype=torch.bfloat16)] * 4; list(stoker.DataLoader(data, batch_size=2"


@pytest.mark.parametrize(
    "call",
    [
        "import stoker._batch; stoker._batch.numpy_dtype('bfloat16')",
        param(f"{LOADED}, num_workers=0, output='numpy'))"),
        param(f"{LOADED}, num_workers=2, output='numpy'))"),
    ],
)
def test_bfloat16_without_ml_dtypes(call: str) -> None:
    done = run_python(LACKS.replace("CALL", call))
    assert "NumPy has no bfloat16" in done.stdout, done.stderr
    assert "install ml_dtypes" in done.stdout


def test_jax() -> None:
    jax = needs("jax")
    for workers, context in ((0, None), (2, "forkserver")):
        loader = stoker.DataLoader(
            Everything(), batch_size=5, num_workers=workers, output="jax", multiprocessing_context=context
        )
        for batch in loader:
            assert all(isinstance(leaf, (jax.Array, str)) for leaf in leaves(batch))
    halves = [torch.zeros(2, dtype=torch.complex32)] * 2
    with pytest.raises(stoker.ConfigError, match=r"has no complex32\n.*pass output="):
        list(stoker.DataLoader(halves, batch_size=2, output="jax"))
