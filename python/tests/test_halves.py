"""Pictures as float16 and bfloat16: the engine gives torchvision v2's numbers, to the bit."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import steps
import torch
import torchvision
from forms import ALL, long, mostly, thinned
from needs import needs
from test_mix import torchvisions
from test_steps import MEAN, STD, rows
from torchvision.transforms import v2

import stoker
from stoker import transforms as T
from stoker._split import split

HALVES = [torch.float16, torch.bfloat16]
CROP = T.RandomResizedCrop(24)


def ends(dtype: torch.dtype) -> dict[str, list[Any]]:
    """Ends of a transform that make such numbers of bytes."""
    scaled, norm = v2.ToDtype(dtype, scale=True), v2.Normalize(MEAN, STD)
    return {
        "scaled": [scaled],
        "whole": [v2.ToDtype(dtype)],
        "normalised": [scaled, norm],
        "of normalised": [v2.ToDtype(torch.float32, scale=True), norm, v2.ToDtype(dtype)],
        "converted": [v2.ConvertImageDtype(dtype), norm, v2.Normalize([0.1], [-2.0])],
    }


@thinned
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("end", ends(torch.float16))
def test_the_numbers_are_torchvisions(folder: Path, dtype: torch.dtype, end: str) -> None:
    after = ends(dtype)[end]
    more: dict[str, Any] = {"shuffle": True, "seed": 4, "num_workers": 1}
    pictures = rows(stoker.ImageFolder(folder, CROP), **more)
    found = rows(stoker.ImageFolder(folder, [CROP, *after]), **more)
    assert split([CROP, *after], "here")[1] is None
    for (picture, label), (numbers, same) in zip(pictures, found, strict=True):
        want = v2.Compose(after)(picture.contiguous())
        assert numbers.dtype == dtype
        assert torch.equal(numbers.view(torch.int16), want.view(torch.int16))
        assert label == same


@pytest.mark.parametrize("dtype", mostly(HALVES, torch.bfloat16), ids=str)
def test_layouts_and_outputs(folder: Path, dtype: torch.dtype) -> None:
    name = str(dtype).removeprefix("torch.")
    train = stoker.ImageFolder(folder, [T.Resize((20, 24)), T.ToDtype(name, scale=True), T.Normalize(MEAN, STD)])
    needs("ml_dtypes")
    jax = needs("jax")
    batch = next(iter(stoker.DataLoader(train, 8)))[0]
    assert batch.shape == (8, 3, 20, 24)
    assert batch.is_contiguous()
    last = next(iter(stoker.DataLoader(train, 8, layout="nhwc")))[0]
    assert last.is_contiguous()
    assert torch.equal(last.permute(0, 3, 1, 2), batch)
    array = next(iter(stoker.DataLoader(train, 8, output="numpy")))[0]
    assert array.dtype.name == name
    assert np.array_equal(array.view(np.int16), batch.view(torch.int16).numpy())
    on_jax = next(iter(stoker.DataLoader(train, 8, output="jax")))[0]
    assert isinstance(on_jax, jax.Array)
    assert np.array_equal(np.asarray(on_jax).view(np.int16), batch.view(torch.int16).numpy())


def test_numpy_needs_ml_dtypes_for_bfloat16(folder: Path) -> None:
    script = f"""
import sys
sys.modules["ml_dtypes"] = None
import stoker
from stoker import transforms as T
train = stoker.ImageFolder({str(folder)!r}, [T.Resize((8, 8)), T.ToDtype("bfloat16")])
try:
    next(iter(stoker.DataLoader(train, 8, output="numpy")))
except stoker.ConfigError as error:
    print(error)
train = stoker.ImageFolder({str(folder)!r}, [T.Resize((8, 8)), T.ToDtype("float16")])
print(next(iter(stoker.DataLoader(train, 8, output="numpy")))[0].dtype)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "NumPy has no bfloat16" in done.stdout
    assert "install ml_dtypes" in done.stdout
    assert done.stdout.endswith("float16\n")


@long
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_python_after_halves(folder: Path, dtype: torch.dtype) -> None:
    """Functions of the user's get the tensors."""
    chain = [T.Resize((20, 24)), v2.ToDtype(dtype, scale=True)]
    want = [picture + 1 for picture, _ in rows(stoker.ImageFolder(folder, chain), num_workers=1)]
    for train in (
        stoker.ImageFolder(folder, [*chain, steps.plus_one]),
        stoker.ImageFolder(folder, chain).map(lambda sample: (steps.plus_one(sample[0]), sample[1])),
    ):
        for (got, _), one in zip(rows(train, num_workers=1), want, strict=True):
            assert got.dtype == dtype
            assert torch.equal(got, one)


@pytest.mark.parametrize("dtype", mostly(HALVES, torch.bfloat16), ids=str)
def test_what_the_engine_does_not_do_to_halves_is_torchvisions(folder: Path, dtype: torch.dtype) -> None:
    scaled, erase = v2.ToDtype(dtype, scale=True), v2.RandomErasing(1.0, value=0.3)
    for chain, known in (
        ([scaled, v2.ToDtype(torch.float32)], 1),
        ([scaled, erase, v2.ToDtype(torch.float32)], 2),
        ([scaled, v2.ColorJitter(0.5)], 1),
    ):
        operations, tail = split(chain, "here")
        assert len(operations) == known
        assert tail is not None
        found = rows(stoker.ImageFolder(folder, [v2.Resize((20, 24)), v2.ToImage(), *chain]), num_workers=1)
        last = chain[-1]
        assert {sample[0].dtype for sample in found} == {last.dtype if isinstance(last, v2.ToDtype) else dtype}


@pytest.mark.parametrize("name", ["float16", "half", "torch.half", "bfloat16"])
def test_halves_by_name(name: str) -> None:
    for step in (v2.ToDtype(torch.float32), v2.ColorJitter(0.5)):
        assert len(split([T.ToDtype(name, scale=True), step], "here")[0]) == 1


def test_ours_says_what_it_does_not_do(folder: Path) -> None:
    erased = [T.ToDtype("bfloat16", scale=True), T.RandomErasing(1.0)]
    with pytest.raises(stoker.ConfigError, match="RandomVerticalFlip after RandomErasing of floats"):
        stoker.DataLoader(stoker.ImageFolder(folder, [*erased, T.RandomVerticalFlip()]))
    with pytest.raises(stoker.ConfigError, match="float16, which Normalize computes in"):
        stoker.DataLoader(stoker.ImageFolder(folder, [T.ToDtype("float16"), T.Normalize([0.0], [1e-9])]))


def erased(dtype: torch.dtype) -> dict[str, tuple[list[Any], list[Any]]]:
    """Chains that erase: what is before and after it."""
    scaled, norm = v2.ToDtype(dtype, scale=True), v2.Normalize(MEAN, STD)
    single = v2.ToDtype(torch.float32, scale=True)
    return {
        "last": ([scaled, norm], []),
        "normalised": ([scaled], [norm, v2.Normalize([0.1], [-2.0])]),
        "converted": ([single], [v2.ToDtype(dtype)]),
        "converted and normalised": ([single], [norm, v2.ToDtype(dtype), norm]),
    }


@thinned
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("value", [0, 0.3, (1.7, -2.3, 1e-3), "random"], ids=str)
@pytest.mark.parametrize("chain", erased(torch.float16))
def test_erased_numbers_are_torchvisions(folder: Path, chain: str, value: Any, dtype: torch.dtype) -> None:
    """To the bit; normal numbers that Normalize follows are rounded once."""
    before, after = erased(dtype)[chain]
    erase = v2.RandomErasing(0.8, value=value)
    front = [T.Resize((20, 24))]
    assert split([*front, *before, erase, *after], "here")[1] is None
    with (
        stoker.DataLoader(stoker.ImageFolder(folder, front), 50) as plain,
        stoker.DataLoader(stoker.ImageFolder(folder, [*front, *before, erase, *after]), 50) as loader,
        stoker.DataLoader(stoker.ImageFolder(folder, [*front, v2.ToDtype(torch.float32), erase]), 50) as noise,
    ):
        (pictures, _), (found, _), (drawn, _) = (next(iter(each)) for each in (plain, loader, noise))
        chosen = [row["choices"]["image"] for row in loader.explain(0)["rows"]]
    boxes = [next(choice for choice in row if choice["op"] == "RandomErasing") for row in chosen]
    assert len({str(box) for box in boxes}) > 3
    for picture, got, box, numbers in zip(pictures, found, boxes, drawn, strict=True):
        y, x, h, w = (box[name] for name in ("top", "left", "height", "width"))
        fill = numbers[:, y : y + h, x : x + w] if value == "random" else torch.tensor(value).view(-1, 1, 1)
        want = v2.Compose(before)(picture.contiguous())
        if h:
            want = v2.functional.erase(want, y, x, h, w, fill)
        want = v2.Compose(after or [v2.Identity()])(want)
        assert got.dtype == dtype
        if value == "random" and "normalised" in chain:
            outside = torch.ones(got.shape, dtype=torch.bool)
            outside[:, y : y + h, x : x + w] = False
            assert torch.equal(got[outside], want[outside])
            torch.testing.assert_close(got, want, rtol=2**-6, atol=2**-5)
        else:
            assert torch.equal(bits(got), bits(want))


@pytest.mark.parametrize("dtype", mostly(HALVES, torch.float16), ids=str)
def test_torchvisions_dataset(folder: Path, dtype: torch.dtype) -> None:
    """The engine reads it if it knows every step."""
    front = [v2.Resize((20, 24)), v2.ToImage()]
    for end, engine in (
        (ends(dtype)["normalised"], True),
        (ends(dtype)["of normalised"], True),
        ([v2.ToDtype(dtype, scale=True), v2.RandomErasing(0.5), v2.Normalize(MEAN, STD)], True),
        ([v2.ToDtype(torch.float32, scale=True), v2.RandomErasing(0.5), v2.ToDtype(dtype)], True),
        ([v2.ToDtype(dtype, scale=True), v2.RandomApply([v2.RandomErasing()])], True),
        ([v2.ToDtype(dtype, scale=True), v2.ToDtype(torch.float32)], False),
        ([v2.ToDtype(dtype, scale=True), v2.RandomErasing(0.0), v2.ToDtype(torch.float32)], False),
        ([v2.ToDtype(dtype, scale=True), v2.RandomErasing(0.0), v2.RandomVerticalFlip()], False),
    ):
        theirs = torchvision.datasets.ImageFolder(folder, v2.Compose([*front, *end]))
        loader = stoker.DataLoader(theirs, 4)
        assert (loader._native is not None) == engine
        with loader:
            got = next(iter(loader))[0]
        assert got.dtype == theirs[0][0].dtype


def bits(x: Any) -> torch.Tensor:
    """Numbers of 16 bits, as tensor or array, as whole numbers."""
    if isinstance(x, torch.Tensor):
        return x.contiguous().view(torch.int16)
    return torch.from_numpy(x.view(np.int16).copy())


class Halves(torch.utils.data.Dataset[Any]):
    """Pictures that Python makes, as tensors or arrays, in some of which numbers are tiny."""

    def __init__(self, dtype: torch.dtype, arrays: bool = False) -> None:
        generator = torch.Generator().manual_seed(1)
        images = torch.randn(21, 3, 6, 8, generator=generator) * torch.logspace(-7, 2, 21).view(-1, 1, 1, 1)
        self.images: Any = images.to(dtype)
        if arrays:
            self.images = self.images.view(torch.int16).numpy().view(str(dtype).removeprefix("torch."))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> Any:
        return self.images[i].copy() if isinstance(self.images, np.ndarray) else self.images[i].clone(), i % 3


def stacked(samples: list[Any]) -> Any:
    images, labels = zip(*samples, strict=True)
    return np.stack(images), np.array(labels)


MIXED: dict[str, tuple[Any, dict[str, Any]]] = {
    "engine": (lambda root, end: stoker.ImageFolder(root, [T.Resize((20, 24)), *end]), {}),
    "engine, numpy": (lambda root, end: stoker.ImageFolder(root, [T.Resize((20, 24)), *end]), {"output": "numpy"}),
    "torchvision's folder": (
        lambda root, end: torchvision.datasets.ImageFolder(root, v2.Compose([v2.Resize((20, 24)), v2.ToImage(), *end])),
        {},
    ),
    "workers": (lambda root, end: Halves(end[0].dtype), {"num_workers": 2}),
    "no workers": (lambda root, end: Halves(end[0].dtype), {"num_workers": 0}),
    "no workers, numpy": (
        lambda root, end: Halves(end[0].dtype, arrays=True),
        {"num_workers": 0, "output": "numpy", "collate_fn": stacked},
    ),
}


@pytest.mark.parametrize(
    ("path", "dtype"),
    mostly(
        product(MIXED, HALVES),
        *(("engine", torch.bfloat16), ("engine, numpy", torch.float16), ("workers", torch.float16)),
        ("no workers, numpy", torch.bfloat16),
    ),
    ids=str,
)
def test_mixed_batches_are_torchvisions(folder: Path, path: str, dtype: torch.dtype) -> None:
    """To the bit, whoever makes and mixes them; from every state."""
    needs("ml_dtypes")
    make, more = MIXED[path]
    more = {"batch_size": 4, "shuffle": True, "seed": 5, **more}
    end = [v2.ToDtype(dtype, scale=True)]
    both = v2.RandomChoice([v2.MixUp(alpha=0.4, num_classes=3), v2.CutMix(num_classes=3)], p=[0.6, 0.4])
    seen, whole, states = set(), [], []
    with (
        stoker.DataLoader(make(folder, end), **more) as plain,
        stoker.DataLoader(make(folder, end), batch_transform=both, **more) as loader,
    ):
        for step, (was, batch) in enumerate(zip(plain, loader, strict=True)):
            choices = loader.explain(step)["batch_transform"]
            seen.add(choices[-1]["op"])
            images = bits(was[0]).view(dtype)
            want, soft = torchvisions(choices, images, torch.as_tensor(was[1]))
            assert torch.equal(bits(batch[0]), bits(want))
            assert torch.equal(torch.as_tensor(batch[1]), soft)
            whole.append((bits(batch[0]).clone(), torch.as_tensor(batch[1]).clone()))
            states.append(loader.state_dict())
    assert seen == {"MixUp", "CutMix"}
    for after, state in list(enumerate(states[:-1], start=1))[:: 1 if ALL else 4]:
        with stoker.DataLoader(make(folder, end), batch_transform=both, **more) as loader:
            loader.load_state_dict(state)
            for (images, labels), batch in zip(whole[after:], loader, strict=True):
                assert torch.equal(bits(batch[0]), images)
                assert torch.equal(torch.as_tensor(batch[1]), labels)
