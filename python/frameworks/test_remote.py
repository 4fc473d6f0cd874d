"""examples/remote/train.py: two ranks train on photographs in a store, which goes away in the middle of an epoch. One
rank is killed with its engine, and the training goes on from its checkpoint."""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import forms
import pytest
import stores
from conftest import PHOTOS, TOP, wait_until
from ranks import Run, Seen, Step, continues, receipts, run

import stoker
from stoker import transforms as T

SCRIPT = TOP / "examples" / "remote" / "train.py"
COUNT, SIZE, EPOCHS = 45, 2, 3  # 12 steps of two ranks, the last with padding
AWAY = 60.0 if forms.ALL else 5.0  # seconds
AWAY_AT, KILL_AT = 14, 33  # batches of a rank, in epochs 1 and 2: so many between them are not read ahead


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs in folders of classes: of STOKER_TEST_PHOTOS, or else those of testdata, again and again."""
    root = tmp_path_factory.mktemp("photographs")
    given = os.environ.get("STOKER_TEST_PHOTOS")
    found = (
        sorted(one for one in Path(given).rglob("*") if one.suffix.lower() in (".jpg", ".jpeg")) if given else PHOTOS
    )
    assert found, f"there are no photographs in {given}"
    for number, path in enumerate(itertools.islice(itertools.cycle(found), COUNT)):
        copy = root / f"class{number % 3}" / f"{number:04d}.jpg"
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(path.read_bytes())
    return root


@pytest.fixture
def net(photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[stores.Net]:
    """The photographs in a bucket, over a link that takes a second or two for an epoch of them."""
    with stores.s3(tmp_path / "s3") as store, stores.proxy(store, "--latency", "20ms", "--total", "4MB/s") as net:
        store.put_folder(photographs, "train")
        for key, value in net.env.items():
            monkeypatch.setenv(key, value)
        monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "cache"))
        yield net


def local(folder: Path) -> Run:
    """What the loaders of both ranks give over the local folder."""
    ranks = []
    for rank in range(2):
        data = stoker.ImageFolder(folder, T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip()]))
        with stoker.DataLoader(data, SIZE, shuffle=True, seed=0, rank=rank, world_size=2) as loader:
            steps = []
            for batch in itertools.chain.from_iterable(loader for _ in range(EPOCHS)):
                values = hashlib.sha256(b"".join(field.contiguous().numpy().tobytes() for field in batch))
                steps.append(Step(batch.epoch, batch.step, batch.ids[batch.valid].tolist(), values.hexdigest()))
            ranks.append([Seen(steps, receipt=loader.receipt())])
    return Run(ranks, "")


def test_the_store_goes_away_and_a_rank_is_killed(net: stores.Net, photographs: Path, tmp_path: Path) -> None:
    whole = local(photographs)
    args = [net.name("train"), "--batch-size", SIZE, "--size", 32, "--save-every", 4, "--epochs", EPOCHS]
    out = tmp_path / "run"
    waited = []  # how many batches the first rank had when the store had been away for a while, and when it came back

    def given() -> int:
        noted = out / "watched-0.0"
        return noted.read_text().count('"ids"') if noted.exists() else 0

    def go_away() -> None:
        wait_until(lambda: given() >= AWAY_AT, "the ranks do not train", seconds=120)
        net.pause()
        time.sleep(AWAY / 2)
        waited.append(given())
        time.sleep(AWAY / 2)
        waited.append(given())
        net.resume()

    away = threading.Thread(target=go_away)
    away.start()
    try:
        cut = run(SCRIPT, *args, out=out, kill_at=KILL_AT, kill_rank=1, torchrun=True, values=True)
    finally:
        away.join()
    assert AWAY_AT <= waited[0] == waited[1] < KILL_AT, f"the training did not wait for the store: {waited}"

    rest = run(SCRIPT, *args, "--resume", out=out, torchrun=True, values=True)
    assert continues(whole, cut, rest) == {"epoch": 2, "step": 8}
    assert "does not answer" in cut.text
    assert "epoch 2: loss" in rest.text
    data = stoker.ImageFolder(photographs, T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip()]))
    with stoker.DataLoader(data, SIZE, shuffle=True, seed=0) as loader:
        verdict = stoker.verify_receipts(receipts(cut, rest), loader)
    assert verdict["ok"], verdict
    assert verdict["complete"], verdict
