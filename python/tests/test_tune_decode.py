"""stoker.tune(decode_device=...): the share of the rows that a device decodes, and what the playbook makes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from forms import param
from pretend import Device, device

import stoker
from stoker import transforms as T

__all__ = ["device"]

CROP = [T.RandomResizedCrop(32), T.RandomHorizontalFlip()]
QUIET: dict[str, Any] = {"playbook": None, "plot": None, "quiet": True}


def over(folder: Path) -> Callable[..., stoker.DataLoader[Any]]:
    def make(**settings: Any) -> stoker.DataLoader[Any]:
        keywords: dict[str, Any] = {"shuffle": True, "seed": 0, "device": "cpu", **settings}
        return stoker.DataLoader(stoker.ImageFolder(folder, CROP), 10, **keywords)

    return make


class Curve:
    """Measures real loaders, an epoch each: all batches come, and their rate is what a curve says of the share."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rate: Callable[[float], float]) -> None:
        self.rate = rate
        self.shares: list[Any] = []  # in the order in which they were asked for
        made = stoker._tune._Maker._made

        def measured(maker: Any, settings: Any, seconds: float, step: Any) -> dict[str, float]:
            keywords = maker.keywords(settings)
            loader = made(maker, keywords)
            assert sum(len(labels) for _, labels in loader) == 50
            decoding = loader._settings.decoding
            loader.close()
            self.shares.append(keywords["decode_device"])
            share = 0.0 if decoding is None else decoding.share / 16
            assert share == (keywords["decode_device"] or ("cpu", 0))[1]
            figures = dict.fromkeys(("samples_per_second", "batches_per_second"), self.rate(share))
            return {**figures, "cores_busy": 1.0, "first_batch_s": 0.01, "spread": 0.0}

        monkeypatch.setattr(stoker._tune._Maker, "measure", measured)


@pytest.mark.parametrize(
    ("name", "rate", "share", "said"),
    [
        ("in between", lambda s: 100 / max(1 - s, s * 0.6), 10, "cpu decodes 10/16 of the JPEGs"),
        param(
            (
                "engine",
                lambda s: 100 / (1 + s),
                0,
                "the engine alone decodes: no measured share of cpu is faster by more than 5 %",
            )
        ),
        param(
            (
                "device",
                lambda s: 100 * (1 + s),
                16,
                "cpu alone decodes: no smaller share that was measured is within 5 % of the best",
            )
        ),
    ],
)
def test_the_share_is_searched(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, rate: Callable[[float], float], share: int, said: str
) -> None:
    curve = Curve(monkeypatch, rate)
    tuned = stoker.tune(over(folder), decode_device="cpu", workers=[1], prefetch=[2], budget=60, **QUIET)
    assert curve.shares[:5] == [None, *(("cpu", n / 16) for n in (4, 8, 12, 16))]
    assert set(curve.shares) <= {None, *(("cpu", n / 16) for n in range(2, 17, 2))}
    assert tuned.report["choice"].get("decode_sixteenths", 0) == share
    assert tuned.report["decode_device"] == "cpu"
    if tuned.report.get("doubt"):  # other processes kept the cores busy
        assert tuned.settings == {}
        return
    chosen = ("cpu", share / 16) if share else None
    assert tuned.settings == {"num_workers": 1, "prefetch": 2, "decode_device": chosen}
    assert said in str(tuned)
    assert f"decode_device={'None' if chosen is None else chosen}".replace("'", '"').replace("1.0)", "1)") in str(tuned)
    with over(folder)(**tuned.settings) as loader:
        assert sum(len(labels) for _, labels in loader) == 50


def test_real_measurements_of_shares(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is the best here, each share that is measured gives batches."""
    measure = stoker._tune._Maker.measure
    monkeypatch.setattr(stoker._tune._Maker, "measure", lambda self, of, seconds, step: measure(self, of, 0.1, step))
    tuned = stoker.tune(over(folder), decode_device="cpu", workers=[1], prefetch=[2], budget=10, **QUIET)
    table = tuned.report["table"]
    assert {row.get("decode_sixteenths", 0) for row in table} <= set(range(0, 17, 2))
    assert all(row["samples_per_second"] > 0 and "failed" not in row for row in table)
    assert len({row.get("decode_sixteenths", 0) for row in table}) == len(table) > 1


def test_the_playbook_gives_the_share(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    make, book = over(folder), str(tmp_path / "book.yaml")

    def share(**keywords: Any) -> int:
        """Of a loader that uses the playbook."""
        capfd.readouterr()
        caplog.clear()
        decoding = make(tune=book, **keywords)._settings.decoding
        return 0 if decoding is None else decoding.share

    # Loaders that decode there, with a share of their own: nothing is searched, and there is nothing to doubt.
    keywords: dict[str, Any] = {"workers": [1], "prefetch": [3], "budget": 2, "playbook": book, "plot": None}
    tuned = stoker.tune(lambda **settings: make(decode_device=("cpu", 0.5), **settings), quiet=True, **keywords)
    assert tuned.settings == {"num_workers": 1, "prefetch": 3}
    assert "cpu decodes 8/16 of the JPEGs; no other share was measured" in str(tuned)
    text = Path(book).read_text()
    assert 'decode_device: "cpu"' in text
    assert "decode_sixteenths: 8" in text

    assert share(decode_device="cpu") == 8
    assert "num_workers=1, prefetch=3, decode_device=('cpu', 0.5), as measured on" in capfd.readouterr().err
    with make(tune=book, decode_device="cpu", seed=7) as loader:
        next(iter(loader))
        state = loader.state_dict()
    assert "1 lane, cpu decodes 8/16 of the JPEGs" in capfd.readouterr().err
    with make(decode_device=("cpu", 0.5), seed=7) as same:
        same.load_state_dict(state)
    with make(decode_device="cpu", seed=7) as other, pytest.raises(stoker.StateError):
        other.load_state_dict(state)
        next(iter(other))

    assert share(decode_device=("cpu", 0.25)) == 4  # what is said here wins
    said = capfd.readouterr().err
    assert "8/16 of the rows on the device, batches of 10; decode_device=('cpu', 0.25) is your own" in said
    assert share(decode_device=("cpu", 1.0)) == 16
    Path(book).write_text(text.replace("decode_sixteenths: 8", "decode_sixteenths: 0"))
    assert share(decode_device="cpu") == 0
    assert "decode_device=None, as measured on" in capfd.readouterr().err
    Path(book).write_text(text)

    # A loader that did not ask for it does not get it, nor the workers that were enough with it.
    assert share() == 0
    assert "no entry for this dataset and decode_device; the nearest (decode_device cpu -> none)" in caplog.text
    stoker.tune(make, quiet=True, **{**keywords, "prefetch": [5]})
    plain = make(tune=book)
    assert (plain._settings.prefetch, plain._settings.decoding) == (5, None)
    assert make(tune=book, decode_device="cpu")._settings.prefetch == 3
    Path(book).unlink()
    stoker.tune(make, quiet=True, **keywords)
    assert share(decode_device="cpu") == 16
    assert "no entry for this dataset and decode_device; the nearest (decode_device none -> cpu)" in caplog.text


def test_an_entry_is_of_a_kind_of_device(
    device: Device, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Which of several equal GPUs it was does not matter: those of the machine are part of its digest."""
    figures = dict.fromkeys(("samples_per_second", "batches_per_second", "cores_busy", "first_batch_s"), 1.0)
    monkeypatch.setattr(stoker._tune._Maker, "measure", lambda *_: {**figures, "spread": 0.0})
    make, book = over(folder), str(tmp_path / "book.yaml")
    keywords: dict[str, Any] = {**QUIET, "workers": [1], "prefetch": [2], "playbook": book}
    stoker.tune(lambda **settings: make(**{"device": "cuda", "decode_device": ("cuda", 0.25), **settings}), **keywords)
    assert 'decode_device: "cuda"' in Path(book).read_text()
    for name in ("cuda", "cuda:0"):
        decoding = make(device=name, decode_device=name, tune=book)._settings.decoding
        assert decoding is not None
        assert decoding.share == 4
        assert f"decode_device=({name!r}, 0.25), as measured on" in capfd.readouterr().err


def test_what_is_wrong_with_it(folder: Path) -> None:
    make = over(folder)
    data: Any = stoker.ImageFolder(folder)
    cases: list[tuple[Any, Any, str]] = [
        (make, ("cpu", 0.5), "give the device alone"),
        (make, "cuda", "decode_device is 'cuda', and device is 'cpu'"),
        (lambda num_workers: make(), "cpu", "make_loader does not accept decode_device"),
        (lambda decode_device, **settings: make(**settings), "cpu", "a loader that decodes nothing on a device"),
        (
            lambda **settings: torch.utils.data.DataLoader(data),
            "cpu",
            "a loader that decodes nothing on a device",
        ),
    ]
    for given, asked, said in cases:
        with pytest.raises(stoker.ConfigError, match="decode_device") as caught:
            stoker.tune(given, decode_device=asked, **QUIET)
        assert said in str(caught.value)
