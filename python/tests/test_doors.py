"""Every augmentation through every door of the package: pixels, cache, states, packing. The Go API, a Spec that is
written by hand and ``stoker bench`` have the same cases: augment_test.go, at the top and in cmd/stoker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from augmented import CHAINS, PICTURES, digest, golden, loaded, pictures
from forms import mostly

import stoker
from stoker import transforms as T

CASES = {case["name"]: case for case in golden()}
FEW = ("RandAugment", "RandomErasing of floats", "RandomOrder")  # one of each kind


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pictures(tmp_path_factory.mktemp("augmented"))


def test_every_chain_has_its_pixels() -> None:
    assert CASES.keys() == CHAINS.keys()


def test_every_augmentation_is_in_a_chain() -> None:
    """Of torchvision's catalogue, what draws."""

    def held(transform: Any) -> set[str]:
        inner = getattr(transform, "transforms", transform if isinstance(transform, (list, tuple)) else ())
        return {type(transform).__name__}.union(*map(held, inner))

    others = {"RandomApply", "RandomCrop", "RandomVerticalFlip"}  # as old as the engine's other tests
    drawing = {name for name in T.__all__ if "Random" in name or name in ("AugMix", "AutoAugment", "ColorJitter")}
    drawing |= {"RandAugment", "TrivialAugmentWide", "GaussianBlur", "ScaleJitter", "Views", "MixUp", "CutMix"}
    assert drawing - held(list(CHAINS.values())) == others


@pytest.mark.parametrize("name", mostly(CHAINS, *list(CHAINS)[::2]))
def test_pixels_are_those_of_every_language(name: str, root: Path) -> None:
    with loaded(root, name) as loader:
        assert digest(loader) == CASES[name]["sha256"]


@pytest.mark.parametrize("name", mostly(CHAINS, *FEW, "Views", "MixUp or CutMix"))
def test_lanes_and_a_cache_change_nothing(name: str, root: Path) -> None:
    for keywords in ({"num_workers": 0}, {"cache": "16MiB"}, {"cache": {"memory": "16MiB", "after": "decode"}}):
        with loaded(root, name, **keywords) as loader:
            assert digest(loader) == CASES[name]["sha256"]
            assert "cache" not in keywords or loader.stats()["cache"]["samples"] == PICTURES


@pytest.mark.parametrize(
    "name", mostly([name for name, (_, mix) in CHAINS.items() if mix is None and name != "Views"], *FEW)
)
def test_packed_copies_are_what_a_spec_packs(name: str, root: Path, tmp_path: Path) -> None:
    """The transform's objects, or the operations of a Spec as text: the same arrays, of which no two are alike."""
    packed: list[list[Any]] = []
    for number, transform in enumerate((CHAINS[name][0], json.dumps(CASES[name]["transform"]))):
        to = tmp_path / str(number)
        stoker.pack(root, to, augment=2, seed=9, decode=True, transform=transform, jobs=1)
        shards = stoker.WebDataset(str(to / "*.tar"))
        packed.append([shards[i]["image.npy"] for i in range(len(shards))])
    assert [len(arrays) for arrays in packed] == [2 * PICTURES, 2 * PICTURES]
    assert all(np.array_equal(one, other) for one, other in zip(*packed, strict=True))
    assert len({np.asarray(array).tobytes() for array in packed[0]}) == 2 * PICTURES
