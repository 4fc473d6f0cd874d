"""Entry points of JPEGs: what one epoch learns, the next one uses, and the batches are the same."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import engine, kill
from forms import mostly

import stoker
from stoker import _engines
from stoker import transforms as T

PHOTOS = Path(__file__).parents[2] / "testdata" / "photos"
CROP = T.Compose([T.RandomResizedCrop(48, scale=(0.05, 0.6)), T.RandomHorizontalFlip()])


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of photographs, and a cache folder of its own."""
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "cache"))
    for number, path in enumerate(sorted(PHOTOS.glob("*.jpg"))):
        (tmp_path / "data" / str(number % 2)).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, tmp_path / "data" / str(number % 2))
    return tmp_path / "data"


def sums(loader: Any) -> list[tuple[int, int]]:
    return [(int(i), int(image.long().sum())) for batch in loader for i, image in zip(batch.ids, batch[0], strict=True)]


def test_later_epochs_and_loaders_use_them(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset = stoker.ImageFolder(photos, CROP)
    with stoker.DataLoader(dataset, 2, True, entries="off") as loader:
        expected = [sums(loader) for _ in range(3)]
        assert "entries" not in loader.stats()
    with stoker.DataLoader(dataset, 2, True) as loader:
        assert [sums(loader) for _ in range(2)] == expected[:2]
        assert loader.stats()["entries"]["wrong"] == 0
    with caplog.at_level(logging.INFO, "stoker"), stoker.DataLoader(dataset, 2, True) as loader:
        loader.set_epoch(2)
        assert sums(loader) == expected[2]
        loader.set_epoch(0)
        assert sums(loader) == expected[0]
        found = loader.stats()["entries"]
    assert found["stored"] >= 6
    assert found["known"] == found["pictures"] > 0
    assert 0 < found["leapt"] < found["mcus"]
    assert "of JPEGs with entry points, which save" in caplog.text


def test_engines_that_are_killed_while_they_learn(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The next engine goes on with what the last one wrote, and a new one finds nothing wrong."""
    dataset = stoker.ImageFolder(photos, CROP)
    with stoker.DataLoader(dataset, 1, True, entries="off") as loader:
        expected = [sums(loader) for _ in range(8)]
    with stoker.DataLoader(dataset, 1, True) as loader:
        for epoch in range(7):
            _engines.client()._deaths.clear()  # three an hour are allowed
            got = []
            for batch in loader:
                got += sums([batch])
                if batch.step == epoch % 6:
                    kill(engine())
            assert got == expected[epoch]
    with caplog.at_level(logging.WARNING, "stoker"), stoker.DataLoader(dataset, 1, True) as loader:
        loader.set_epoch(7)
        assert sums(loader) == expected[7]
        found = loader.stats()["entries"]
    assert found["wrong"] == 0
    assert found["stored"] > 0
    assert "learned from samples" not in caplog.text


@pytest.mark.parametrize(
    "good",
    mostly(["auto", None, True, False, "off", {"limit": "1GiB"}, {"limit": 1 << 20}], None, "off", {"limit": "1GiB"}),
)
def test_what_can_be_said_of_them(photos: Path, good: Any) -> None:
    with stoker.DataLoader(stoker.ImageFolder(photos, CROP), 3, entries=good) as loader:
        assert len(sums(loader)) == 6
        assert ("entries" in loader.stats()) == (good not in (False, "off"))


@pytest.mark.parametrize("bad", ["on", 3, [], {}, {"limit": "auto"}, {"limit": -1}, {"limit": 0}, {"size": 3}])
def test_what_cannot(photos: Path, bad: Any) -> None:
    with pytest.raises(stoker.ConfigError, match="entries"):
        stoker.DataLoader(stoker.ImageFolder(photos, CROP), 3, entries=bad)
