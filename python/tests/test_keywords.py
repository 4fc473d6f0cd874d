"""The keywords of DataLoader: torch's rules, stoker's additions, and the Spec that comes out."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data
from conftest import engines, wait_until

import stoker
from stoker import transforms as T
from stoker._spec import spec


class Mine(torch.utils.data.Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return index

    def __len__(self) -> int:
        return 3


@pytest.fixture
def dataset(folder: Path) -> stoker.ImageFolder:
    return stoker.ImageFolder(folder)


def spec_of(dataset: Any, **keywords: Any) -> dict[str, Any]:
    loader = stoker.DataLoader(dataset, **keywords)
    return spec(loader._settings, dataset._recipe(), dataset._fields())


def test_nothing_said_is_left_out(dataset: stoker.ImageFolder) -> None:
    built = spec_of(dataset)
    assert built == {
        "dataset": {"path": dataset.root, "format": "folder"},
        "fields": [
            {"name": "image", "from": "image", "decode": "rgb"},
            {"name": "label", "from": "label", "decode": "int"},
        ],
        "batch": {"size": 1},
    }


def test_everything_said_is_there(dataset: stoker.ImageFolder) -> None:
    built = spec_of(
        dataset,
        batch_size=64,
        shuffle=True,
        num_workers=4,
        drop_last=True,
        seed=7,
        rank=1,
        world_size=2,
        on_bad="skip",
        max_bad=10,
        max_bad_rate=0.5,
        layout="nhwc",
        prefetch=8,
        memory="2GiB",
    )
    assert built["order"] == {"shuffle": "full", "seed": 7, "tail": "drop"}
    assert built["batch"] == {"size": 64}
    assert built["deliver"] == {"prefetch": 8, "memory": "2GiB"}
    assert built["on_bad"] == {"policy": "skip", "max_bad": 10, "max_bad_rate": 0.5}
    assert (built["workers"], built["rank"], built["world_size"]) == (4, 1, 2)
    assert [field.get("layout") for field in built["fields"]] == ["nhwc", None]


def test_num_workers(dataset: stoker.ImageFolder) -> None:
    assert "workers" not in spec_of(dataset)
    assert spec_of(dataset, num_workers=0)["workers"] == 1
    assert spec_of(dataset, num_workers=5)["workers"] == 5
    assert stoker.DataLoader(dataset).num_workers >= 1
    assert stoker.DataLoader(dataset, num_workers=5).num_workers == 5


def test_prefetch_factor_counts_by_the_lane(dataset: stoker.ImageFolder) -> None:
    assert spec_of(dataset, num_workers=3, prefetch_factor=2)["deliver"] == {"prefetch_factor": 2}


def test_generator_gives_the_seed(dataset: stoker.ImageFolder) -> None:
    assert spec_of(dataset, generator=torch.Generator().manual_seed(99))["order"] == {"seed": 99}


def test_rank_and_world_from_the_environment(dataset: stoker.ImageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    built = spec_of(dataset)
    assert (built["rank"], built["world_size"]) == (2, 3)
    assert "rank" not in spec_of(dataset, rank=0, world_size=1)
    monkeypatch.setenv("RANK", "two")
    with pytest.raises(stoker.ConfigError, match="WORLD_SIZE"):
        spec_of(dataset)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"batch_size": 0}, "batch_size"),
    ({"batch_size": 1.5}, "batch_size"),
    ({"batch_size": True}, "batch_size"),
    ({"batch_size": None, "drop_last": True}, "drop_last"),
    ({"num_workers": -1}, "num_workers"),
    ({"num_workers": 0, "prefetch_factor": 2}, "prefetch_factor"),
    ({"num_workers": 0, "persistent_workers": True}, "persistent_workers"),
    ({"prefetch_factor": 0}, "prefetch_factor"),
    ({"timeout": float("inf")}, "timeout"),
    ({"prefetch": 2, "prefetch_factor": 2}, "prefetch"),
    ({"timeout": -1}, "timeout"),
    ({"timeout": "x"}, "timeout"),
    ({"shuffle": "yes"}, "shuffle"),
    ({"drop_last": True, "tail": "pad"}, "tail"),
    ({"tail": "wrap"}, "tail"),
    ({"seed": 1, "generator": torch.Generator()}, "generator"),
    ({"seed": 1 << 64}, "seed"),
    ({"generator": 5}, "generator"),
    ({"rank": 1}, "world_size"),
    ({"rank": 2, "world_size": 2}, "rank"),
    ({"on_bad": "skipp"}, "did you mean 'skip'"),
    ({"max_bad": 5}, "on_bad"),
    ({"max_bad": 0, "on_bad": "skip"}, "max_bad"),
    ({"max_bad_rate": 2, "on_bad": "skip"}, "max_bad_rate"),
    ({"device": "cuda:1000"}, "device is 'cuda:1000'"),
    ({"device": torch.device("cuda", 101)}, "device is 'cuda:101'"),
    ({"device": "tpu"}, "batch.to(device)"),
    ({"device_prefetch": 3}, "device_prefetch needs device="),
    ({"output": "tf"}, "output"),
    ({"layout": "nchv"}, "did you mean 'nchw'"),
    ({"memory": -1}, "memory"),
    ({"memory": 1.5}, "memory"),
    ({"collate_fn": 5}, "collate_fn"),
    ({"sampler": 3}, "sampler is of type int"),
    ({"sampler": [1, 2], "shuffle": True}, "exclude"),
    ({"sampler": [1, 2], "batch_sampler": [[1]]}, "exclude"),
    ({"sampler": [1, 2], "weights": [1]}, "weights"),
    ({"batch_sampler": [[1]], "batch_size": 4}, "batch_size"),
    ({"shuffle": "blok"}, "'block'"),
    ({"shuffle": True, "weights": [1]}, "exclude"),
    ({"weights": "heavy"}, "weights is of type str"),
    ({"weights": [1, "x"]}, "an item that is not a number"),
    ({"num_samples": 0}, "num_samples"),
    ({"global_batch_size": 0}, "global_batch_size"),
    ({"global_batch_size": 8, "batch_size": 4}, "give only one"),
    ({"long": "cut"}, "'truncate'"),
    ({"window": -1}, "window"),
    ({"balanced": 2}, "balanced"),
]


@pytest.mark.parametrize(("keywords", "text"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_can_not_be_is_refused_at_once(dataset: stoker.ImageFolder, keywords: dict[str, Any], text: str) -> None:
    with pytest.raises(stoker.ConfigError) as caught:
        stoker.DataLoader(dataset, **keywords)
    assert text in str(caught.value)
    assert caught.value.code == "config"


def test_torchs_own_collate_is_what_happens_anyway(dataset: stoker.ImageFolder) -> None:
    stoker.DataLoader(dataset, collate_fn=torch.utils.data.default_collate)


def test_other_datasets_are_named() -> None:
    with pytest.raises(stoker.ConfigError, match="NoneType"):
        stoker.DataLoader(None)  # type: ignore[call-overload]
    with pytest.raises(stoker.ConfigError, match="ImageFolder"):
        stoker.DataLoader("data/train")


def test_what_is_moot_is_said_once(dataset: stoker.ImageFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        stoker.DataLoader(
            dataset,
            num_workers=2,
            persistent_workers=True,
            multiprocessing_context="spawn",
            worker_init_fn=print,
            in_order=False,
            pin_memory=True,
            output="numpy",
        )
    said = capsys.readouterr().err
    for key in ("persistent_workers", "multiprocessing_context", "worker_init_fn", "in_order", "pin_memory"):
        assert said.count(f"{key} is ignored") + said.count(f"{key}=False is ignored") == 1, key


def test_attributes_of_torchs(dataset: stoker.ImageFolder) -> None:
    loader = stoker.DataLoader(dataset, 8, num_workers=2, drop_last=True, timeout=3, pin_memory=False)
    theirs = torch.utils.data.DataLoader(Mine(), 8, num_workers=2, drop_last=True, timeout=3)
    for name in (
        "batch_size num_workers drop_last timeout pin_memory collate_fn worker_init_fn generator prefetch_factor "
        "persistent_workers pin_memory_device in_order multiprocessing_context batch_sampler"
    ).split():
        assert hasattr(theirs, name)
        if name not in ("collate_fn", "batch_sampler", "prefetch_factor"):
            assert getattr(loader, name) == getattr(theirs, name), name
    assert loader.dataset is dataset
    loader.sampler.set_epoch(4)
    assert loader._at.next_epoch == 4
    with pytest.raises(AttributeError, match="batch_sise"):
        loader.batch_sise  # noqa: B018


@pytest.mark.parametrize("own", [False, True])
def test_the_batch_sampler_says_what_the_batches_are(dataset: stoker.ImageFolder, own: bool) -> None:
    data: Any = torch.utils.data.Subset(range(23), range(23)) if own else dataset  # type: ignore[arg-type]
    loader: Any = stoker.DataLoader(data, batch_size=4, drop_last=True, shuffle=True)
    batches = loader.batch_sampler
    assert (batches.batch_size, batches.drop_last, len(batches)) == (4, True, len(loader))
    batches.sampler.set_epoch(3)
    assert next(iter(loader)) is not None
    # A loader of torch's that is made from it, as accelerate.skip_first_batches does, would give other batches.
    with pytest.raises(stoker.ConfigError, match=r"loader\.skip"):
        list(torch.utils.data.DataLoader(loader.dataset, batch_sampler=batches))
    assert stoker.DataLoader(data, batch_size=None).batch_sampler is None
    theirs = torch.utils.data.BatchSampler(range(8), 2, drop_last=False)
    assert stoker.DataLoader(data, batch_sampler=theirs).batch_sampler is theirs


def test_image_folder_refuses_python_functions(tmp_path: Path) -> None:
    with pytest.raises(stoker.ConfigError) as caught:
        stoker.ImageFolder(tmp_path, None, lambda t: t, lambda p: p, lambda p: True)
    for name in ("target_transform", "loader", "is_valid_file"):
        assert name in str(caught.value)


def test_the_logger_takes_over_where_somebody_listens(
    dataset: stoker.ImageFolder, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level("INFO", logger="stoker"):
        stoker.DataLoader(dataset, in_order=False)
    assert "in_order" in caplog.text
    assert "in_order" not in capsys.readouterr().err


LEVELS: dict[tuple[str, str], list[str]] = {
    ("", "NOTSET"): ["notice", "warning"],
    ("DEBUG", "NOTSET"): ["notice", "warning"],
    ("INFO", "NOTSET"): ["notice", "warning"],
    ("WARNING", "NOTSET"): ["warning"],
    ("CRITICAL", "NOTSET"): [],
    ("INFO", "INFO"): ["warning"],
}
SAY = """
import json, logging, os, sys
import stoker
from stoker import _notice
for case in json.loads(sys.argv[1]):
    level, disabled, handler = case
    if os.fork():  # each in a process of its own
        os.wait()
        continue
    print("--", *case, sep="|", file=sys.stderr, flush=True)
    if handler:
        logging.getLogger("stoker").addHandler(logging.StreamHandler(sys.stderr))
    if level:
        logging.getLogger("stoker").setLevel(level)
    logging.disable(getattr(logging, disabled))
    _notice.say("a notice")
    _notice.warn("a warning")
    os._exit(0)
"""


def test_the_level_of_the_logger_filters_with_and_without_a_handler() -> None:
    cases = [(*said, handler) for said in LEVELS for handler in ("", "handler")]
    done = subprocess.run(
        [sys.executable, "-c", SAY, json.dumps(cases)],
        env={**os.environ, "PYTHONPATH": str(Path(stoker.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    found = [line.removeprefix("stoker: ") for line in done.stderr.splitlines()]
    want: list[str] = []
    for level, disabled, handler in cases:
        want += [f"--|{level}|{disabled}|{handler}", *(f"a {word}" for word in LEVELS[level, disabled])]
    assert found == want


@pytest.mark.parametrize("number", [1 << 63, (1 << 53) + 1, 10**400])
def test_numbers_beyond_all_reason_are_refused_with_the_range(dataset: stoker.ImageFolder, number: int) -> None:
    n = len(dataset)
    makes: dict[str, Callable[[], Any]] = {
        "num_samples": lambda: stoker.RandomSampler(dataset, replacement=True, num_samples=number),
        "num_samples ": lambda: stoker.WeightedRandomSampler([1.0] * n, number),
        "batch_size": lambda: stoker.BatchSampler(range(n), number, False),
        "num_samples  ": lambda: stoker.DataLoader(dataset, 8, weights=[1.0] * n, num_samples=number),
        "block": lambda: stoker.DataLoader(dataset, 8, "block", block=number),
        "window": lambda: stoker.DataLoader(dataset, 8, "block", window=number),
        "batch_size ": lambda: stoker.DataLoader(dataset, number),
        "global_batch_size": lambda: stoker.DataLoader(dataset, global_batch_size=number),
    }
    for name, make in makes.items():
        with pytest.raises(stoker.ConfigError, match=rf"{name.strip()} is {str(number)[:60]}") as caught:
            make()
        assert "from 1 to 2**53" in str(caught.value)


def test_what_only_the_data_can_tell_is_told_at_once_too(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    for path, text in ((str(folder) + "x", "did you mean"), (tmp_path / "nothing", "folder")):
        with pytest.raises(stoker.ConfigError, match=text):
            stoker.ImageFolder(path)
    with pytest.raises(stoker.ConfigError, match="size"):
        stoker.DataLoader(stoker.ImageFolder(folder, T.RandomResizedCrop(0)), 4)
    with pytest.raises(stoker.ResourceError, match="two must fit"):
        stoker.DataLoader(stoker.ImageFolder(folder, T.RandomResizedCrop(64)), 4, memory="10KB")
    for shard in ("nope.tar", "{000..002}.tar"):
        with pytest.raises(stoker.ConfigError, match=r"\.tar"):
            stoker.DataLoader(stoker.WebDataset(str(tmp_path / shard)).decode("pil").to_tuple("jpg", "cls"), 4)


def test_a_new_loader_holds_no_engine_and_pickles(folder: Path) -> None:
    loader = stoker.DataLoader(stoker.ImageFolder(folder, T.RandomResizedCrop(32)), 4)
    again = pickle.loads(pickle.dumps(loader))
    assert [b.ids.tolist() for b in again] == [b.ids.tolist() for b in loader]
    loader.close()
    again.close()
    wait_until(lambda: not engines(os.getpid()), "the engine outlives its loaders")


@pytest.mark.parametrize(
    "name", ["collate_fn", "shuffle", "seed", "timeout", "generator", "worker_init_fn", "batch_size", "dataset", "tail"]
)
def test_keywords_cannot_be_assigned_to_later(name: str) -> None:
    loader = stoker.DataLoader(stoker.Synthetic(8), 4)
    with pytest.raises(stoker.ConfigError, match=f"DataLoader.{name} cannot be assigned to"):
        setattr(loader, name, None)
    assert sum(1 for _ in loader) == 2


def test_an_epoch_of_concatenated_datasets_has_every_sample(tmp_path: Path) -> None:
    # What a ConcatDataset is told to write.
    parts = []
    for n, size in enumerate((60, 15)):
        (tmp_path / str(n)).mkdir()
        np.save(tmp_path / str(n) / "x.npy", np.arange(size))
        parts.append(stoker.NpyDataset(tmp_path / str(n) / "x.npy"))
    whole = stoker.Mixture(parts, weights=[len(d) for d in parts], stop="all_exhausted")
    ids = np.concatenate([b.ids[np.asarray(b.valid)] for b in stoker.DataLoader(whole, 5, shuffle=True)])
    assert sorted(ids.tolist()) == list(range(75))
