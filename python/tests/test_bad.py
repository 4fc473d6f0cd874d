"""Damaged, missing and changed files under each policy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from conftest import make_folder
from forms import thinned

import stoker
from stoker import transforms as T

CROP = T.CenterCrop(32)
DAMAGED = {3: b"", 17: b"\xff\xd8\xff\xe0 no picture", 31: None, 44: b"random bytes"}


@pytest.fixture
def damaged(own_folder: Path) -> stoker.ImageFolder:
    """A folder with four damaged files: empty, a header only, cut in the middle, no image at all."""
    dataset = stoker.ImageFolder(own_folder, CROP)
    for sample, body in DAMAGED.items():
        path = Path(dataset.samples[sample][0])
        body = path.read_bytes()[:-500] if body is None else body
        path.unlink()  # a file rewritten in place is noticed when it is read: the index of the folder is still trusted
        path.write_bytes(body)
    return stoker.ImageFolder(own_folder, CROP)


def test_fail_names_everything(damaged: stoker.ImageFolder) -> None:
    with stoker.DataLoader(damaged, 10) as loader:
        iterator = iter(loader)
        for _ in range(2):
            with pytest.raises(stoker.DataError) as caught:
                next(iterator)
            assert caught.value.where["sample"] == 3
            assert caught.value.where["file"] == damaged.samples[3][0]
            assert caught.value.hint
        assert loader.state_dict()["position"] == 0


def test_every_kind_of_damage_is_a_data_error(damaged: stoker.ImageFolder) -> None:
    for sample in DAMAGED:
        with pytest.raises(stoker.DataError) as caught:
            damaged[sample]
        assert caught.value.where["sample"] == sample
        assert damaged.samples[sample][0] in str(caught.value)
    assert damaged[4][1] == damaged.targets[4]


def test_skip_keeps_every_row_and_marks_it(damaged: stoker.ImageFolder) -> None:
    with stoker.DataLoader(damaged, 10, on_bad="skip") as loader:
        bad: list[Any] = []
        invalid: list[int] = []
        rows = 0
        for batch in loader:
            rows += len(batch.ids)
            bad += batch.bad
            invalid += [int(i) for i, ok in zip(batch.ids, batch.valid, strict=True) if not ok]
        assert rows == 50
        assert sorted(b.sample for b in bad) == invalid == sorted(DAMAGED)
        assert all(b.put == -1 and isinstance(b.error, stoker.DataError) for b in bad)
        assert all(b.error.where["file"] == damaged.samples[b.sample][0] for b in bad)


def test_replace_puts_others_there(damaged: stoker.ImageFolder) -> None:
    def run(**settings: Any) -> list[list[int]]:
        with stoker.DataLoader(damaged, 10, True, on_bad="replace", **settings) as loader:
            out = []
            for batch in loader:
                assert bool(batch.valid.all())
                for b in batch.bad:
                    assert b.sample in DAMAGED
                    assert b.put in batch.ids.tolist()
                    assert b.put not in DAMAGED
                out.append(batch.ids.tolist())
            return out

    once = run(num_workers=1)
    assert sum(map(len, once)) == 50
    assert not {i for ids in once for i in ids} & set(DAMAGED)
    assert run(num_workers=3) == once


def test_ranks_stay_in_step(damaged: stoker.ImageFolder) -> None:
    for policy in ("skip", "replace"):
        steps = []
        for rank in range(3):
            with stoker.DataLoader(damaged, 4, True, on_bad=policy, rank=rank, world_size=3) as loader:
                steps.append([len(batch.ids) for batch in loader])
        assert steps[0] == steps[1] == steps[2]


def test_a_limit_ends_the_run(damaged: stoker.ImageFolder) -> None:
    with stoker.DataLoader(damaged, 10, on_bad="skip", max_bad=2) as loader:
        with pytest.raises(stoker.DataError) as caught:
            list(loader)
        assert caught.value.code == "bad_limit"
        assert "max_bad" in str(caught.value)
    with stoker.DataLoader(damaged, 10, on_bad="skip", max_bad=4) as loader:
        assert len(list(loader)) == 5


@thinned
@pytest.mark.parametrize("where", [{}, {"device": "cpu"}])
@pytest.mark.parametrize("limit", [{"max_bad": 2}, {"max_bad_rate": 0.02}])
def test_a_limit_counts_all_pieces_of_a_samplers_order(
    damaged: stoker.ImageFolder, monkeypatch: pytest.MonkeyPatch, limit: dict[str, Any], where: dict[str, Any]
) -> None:
    """It comes in pieces, each a pass of the engine's, and is one pass to its user."""
    order = 3 * [number for number in range(50) if number not in DAMAGED]
    for at, sample in zip((20, 70, 120), DAMAGED, strict=False):
        order.insert(at, sample)

    def end(piece: int) -> tuple[int, str]:
        monkeypatch.setattr("stoker._feed.PIECE", piece)
        rows = 0
        with stoker.DataLoader(damaged, 10, sampler=order, on_bad="skip", **limit, **where) as loader:
            with pytest.raises(stoker.DataError) as caught:
                for batch in loader:
                    rows += len(batch.ids)
            assert loader.stats()["passes"] == 1
        return rows, caught.value.what

    assert end(50) == end(65536)
    monkeypatch.setattr("stoker._feed.PIECE", 50)
    with stoker.DataLoader(damaged, 10, sampler=order, on_bad="skip", max_bad=3, **where) as loader:
        assert sum(len(batch.bad) for batch in loader) == 3
        told = loader.stats()
        assert [told[key] for key in ("samples", "bad", "passes")] == [len(order), 3, 1]


def test_a_share_ends_the_run(tmp_path: Path) -> None:
    """It is looked at after the first 100 samples."""
    paths = sorted(make_folder(tmp_path / "f", 16).rglob("*.jpg"))
    for path in paths[::4]:
        path.write_bytes(b"")
    dataset = stoker.files(paths * 10, transform=CROP)
    with stoker.DataLoader(dataset, 10, on_bad="skip", max_bad_rate=0.3) as loader:
        assert sum(len(batch.ids) for batch in loader) == 160
    with stoker.DataLoader(dataset, 10, on_bad="skip", max_bad_rate=0.1) as loader:
        with pytest.raises(stoker.DataError) as caught:
            list(loader)
        assert caught.value.code == "bad_limit"


def test_a_file_that_vanished(own_folder: Path) -> None:
    dataset = stoker.ImageFolder(own_folder, CROP)
    with stoker.DataLoader(dataset, 10) as loader:
        list(loader)
        Path(dataset.samples[25][0]).unlink()
        with pytest.raises(stoker.DataError) as caught:
            for _ in range(2):
                list(loader)
        assert caught.value.where["sample"] == 25
        assert caught.value.code == "changed"


def test_a_file_that_may_not_be_read(own_folder: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    dataset = stoker.ImageFolder(own_folder, CROP)
    Path(dataset.samples[25][0]).chmod(0)
    with stoker.DataLoader(dataset, 10) as loader, pytest.raises(stoker.DataError) as caught:
        list(loader)
    assert caught.value.code == "forbidden"


def test_a_dataset_that_changed_under_a_restart(own_folder: Path) -> None:
    from conftest import engine, kill

    dataset = stoker.ImageFolder(own_folder, CROP)
    with stoker.DataLoader(dataset, 10) as loader:
        iterator = iter(loader)
        next(iterator)
        kill(engine())
        (own_folder / "class0" / "zz.jpg").write_bytes(Path(dataset.samples[0][0]).read_bytes())
        for _ in range(2):
            with pytest.raises(stoker.DataError, match="changed"):
                next(iterator)


def test_names_out_of_data_move_no_terminal(own_folder: Path) -> None:
    hostile = own_folder / "class_0" / "\x1b[2J\ncleared.jpg"
    next(own_folder.glob("*/*.jpg")).rename(own_folder / "first.jpg")
    hostile.parent.mkdir(exist_ok=True)
    hostile.write_bytes(b"no picture")
    (own_folder / "first.jpg").unlink()
    dataset = stoker.ImageFolder(own_folder, CROP)
    at = [path for path, _ in dataset.samples].index(str(hostile))
    with pytest.raises(stoker.DataError) as caught:
        dataset[at]
    text = str(caught.value)
    assert caught.value.where["file"] == str(hostile)
    assert repr(str(hostile)) in text
    assert text.replace("\n  try: ", "").isprintable()

    error = stoker.DataError("two\nlines\x07", where={"file": "a.tar"}, cause="\x9b", hint="\x1b[0m")
    assert str(error) == "two\nlines\\x07 (a.tar): \\x9b\n  try: \\x1b[0m"
