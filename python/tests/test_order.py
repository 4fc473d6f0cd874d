"""Every order that keywords can ask for: saved at every step and gone on with, made under other settings, refused."""

from __future__ import annotations

import copy
import io
import json
import pickle
import random
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forms
import pytest
import torch
import torch.utils.data
from conftest import engine, kill
from forms import long, mostly, thinned

import stoker
from stoker import transforms as T

OPS = T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip()])
SIZES = [i * i * 7 % 41 for i in range(61)]  # bytes of the texts: 0 to 40


class Seeded:
    """A sampler of a user's own: another permutation every epoch, none of it kept."""

    def __init__(self, n: int, batch: int = 0) -> None:
        self.n = n
        self.batch = batch
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(range(self.batch, self.n, self.batch + 1)) + 1 if self.batch else self.n

    def __iter__(self) -> Iterator[Any]:
        ids = random.Random(self.epoch).sample(range(self.n), self.n)
        self.epoch += 1
        if not self.batch:
            return iter(ids)
        ends = [*range(self.batch, self.n, self.batch + 1), self.n]
        return iter([ids[a:b] for a, b in zip([0, *ends], ends, strict=False)])


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> str:
    """61 texts of 0 to 40 bytes in two shards; byte i of text t is 100 t + i, modulo 256."""
    root = tmp_path_factory.mktemp("texts")
    for shard, (first, end) in enumerate([(0, 37), (37, 61)]):
        with tarfile.open(root / f"t-{shard}.tar", "w") as tar:
            for i in range(first, end):
                for name, body in (("bin", text(i)), ("cls", str(i % 4).encode())):
                    info = tarfile.TarInfo(f"{i:03d}.{name}")
                    info.size = len(body)
                    tar.addfile(info, io.BytesIO(body))
    return str(root / "t-{0..1}.tar")


def text(i: int) -> bytes:
    return bytes((100 * i + k) % 256 for k in range(SIZES[i]))


class Data:
    """The datasets that the cases are made of."""

    def __init__(self, folder: Path, shards: str, texts: str) -> None:
        self.pictures = stoker.ImageFolder(folder, OPS)
        self.shards = stoker.WebDataset(shards).decode("pil").to_tuple("jpg", "cls").map_tuple(OPS)
        self.texts = stoker.WebDataset(texts).to_tuple("bin")
        self.labelled = stoker.WebDataset(texts)

    def mixture(self, **keywords: Any) -> stoker.Mixture:
        big = stoker.WebDataset(self.shards.urls).decode("pil").rename(image="jpg", label="cls", keep=False)
        ops = {"image": OPS}
        return stoker.Mixture([big.map_dict(**ops).to_tuple("image", "label"), self.pictures], **keywords)


WEIGHTS = [i * 37 % 11 / 3 for i in range(50)]

# name -> (dataset, keywords); samplers are made anew for every loader.
Make = Callable[[Data], tuple[Any, dict[str, Any]]]
CASES: dict[str, Make] = {
    "none": lambda d: (d.pictures, {}),
    "full": lambda d: (d.pictures, {"shuffle": True, "seed": 3}),
    "fill": lambda d: (d.pictures, {"shuffle": True, "tail": "fill"}),
    "drop": lambda d: (d.pictures, {"shuffle": True, "drop_last": True}),
    "single": lambda d: (d.pictures, {"shuffle": True, "batch_size": None}),
    "block": lambda d: (d.pictures, {"shuffle": "block", "block": 6, "streams": 3, "window": 9}),
    "block of shards": lambda d: (d.labelled, {"shuffle": "block", "streams": 2, "window": 20}),
    "window": lambda d: (d.pictures, {"shuffle": "window", "window": 12}),
    "part": lambda d: (d.pictures, {"shuffle": True, "num_samples": 33}),
    "alike": lambda d: (d.pictures, {"replacement": True, "num_samples": 60}),
    "weights": lambda d: (d.pictures, {"weights": WEIGHTS}),
    "weights, more": lambda d: (d.pictures, {"weights": WEIGHTS, "num_samples": 77, "seed": 9}),
    "weights, each once": lambda d: (d.pictures, {"weights": WEIGHTS, "replacement": False, "num_samples": 40}),
    "balanced": lambda d: (d.pictures, {"balanced": True}),
    "balanced, each once": lambda d: (d.pictures, {"balanced": True, "replacement": False, "num_samples": 30}),
    "mixture": lambda d: (d.mixture(weights=[1, 3]), {"shuffle": True}),
    "mixture, alike": lambda d: (d.mixture(stop="all_exhausted"), {}),
    "mixture, single": lambda d: (d.mixture(weights=[2, 1], batches="single"), {"shuffle": True}),
    "mixture, steps": lambda d: (
        d.mixture(schedule=[(0, [1, 1]), (20, [1, 9])]), {"shuffle": "block", "block": 7, "streams": 2}),
    "mixture, windows": lambda d: (d.mixture(weights=[0.2, 0.8]), {"shuffle": "window", "window": 7}),
    "mixture, linear": lambda d: (
        d.mixture(schedule=[(0, [9, 1]), (50, [1, 9])], linear=True, stop="repeat"), {"num_samples": 62}),
    "bucket": lambda d: (d.texts, {"shuffle": True, "lengths": "bin", "bucket": 12, "length_window": 30}),
    "bucket by a list": lambda d: (d.texts, {"shuffle": True, "lengths": SIZES, "bucket": 8}),
    "tokens": lambda d: (d.texts, {"shuffle": True, "lengths": "bin", "tokens": 130, "length_window": 25}),
    "tokens, few rows": lambda d: (d.texts, {"shuffle": True, "lengths": SIZES, "tokens": 200, "batch_size": 6}),
    "pack": lambda d: (d.texts, {"shuffle": True, "lengths": "bin", "pack": 32, "length_window": 20}),
    "pack, truncated": lambda d: (d.texts, {"lengths": "bin", "pack": 24, "long": "truncate", "batch_size": 3}),
    "sampler": lambda d: (d.pictures, {"sampler": Seeded(50)}),
    "sampler, dropped": lambda d: (d.pictures, {"sampler": Seeded(50), "drop_last": True}),
    "batch_sampler": lambda d: (d.pictures, {"batch_sampler": Seeded(50, 6)}),
    "list": lambda d: (d.pictures, {"sampler": [3, 3, 7, *range(20)]}),
    "lists": lambda d: (d.pictures, {"batch_sampler": [[3, 3], [7], [*range(20)]]}),
    "SequentialSampler": lambda d: (d.pictures, {"sampler": stoker.SequentialSampler(d.pictures)}),
    "RandomSampler": lambda d: (d.pictures, {"sampler": stoker.RandomSampler(d.pictures, seed=5)}),
    "RandomSampler, drawn": lambda d: (d.pictures, {"sampler": stoker.RandomSampler(d.pictures, True, 61)}),
    "RandomSampler, rounds": lambda d: (d.pictures, {"sampler": stoker.RandomSampler(d.pictures, num_samples=70)}),
    "SubsetRandomSampler": lambda d: (
        d.pictures, {"sampler": stoker.SubsetRandomSampler([1, 1, 49, *range(7, 30)], seed=2)}),
    "WeightedRandomSampler": lambda d: (d.pictures, {"sampler": stoker.WeightedRandomSampler(WEIGHTS, 55)}),
    "WeightedRandomSampler, each once": lambda d: (
        d.pictures, {"sampler": stoker.WeightedRandomSampler(WEIGHTS, 40, False, seed=1)}),
    "DistributedSampler": lambda d: (d.pictures, {"sampler": stoker.DistributedSampler(d.pictures, 3, 1)}),
    "DistributedSampler, dropped": lambda d: (
        d.pictures, {"sampler": stoker.DistributedSampler(d.pictures, 3, 1, drop_last=True)}),
    "BatchSampler": lambda d: (
        d.pictures, {"batch_sampler": stoker.BatchSampler(stoker.RandomSampler(d.pictures), 7, True)}),
    "BatchSampler of a user's": lambda d: (d.pictures, {"batch_sampler": stoker.BatchSampler(Seeded(50), 7, False)}),
}  # fmt: skip


@pytest.fixture(scope="module")
def data(folder: Path, shards: str, texts: str) -> Data:
    return Data(folder, shards, texts)


def loader_of(name: str, data: Data, **more: Any) -> stoker.DataLoader:
    dataset, keywords = CASES[name](data)
    keywords = {**keywords, **more}
    if "global_batch_size" in more:
        keywords.pop("batch_size", None)
    if "batch_sampler" not in keywords and "tokens" not in keywords and "global_batch_size" not in keywords:
        keywords.setdefault("batch_size", 8)
    return stoker.DataLoader(dataset, **keywords)


def plain(value: Any) -> Any:
    """A value of a batch as something that compares, bytes and shape."""
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), tuple(value.shape), value.contiguous().numpy().tobytes())
    return value


def facts(batch: Any) -> tuple[Any, ...]:
    """Everything about a batch."""
    values = batch.items() if isinstance(batch, dict) else batch
    more = [plain(getattr(batch, name, None)) for name in ("cu_seqlens", "position_ids")]
    fields = [plain(value) if not isinstance(value, tuple) else (value[0], plain(value[1])) for value in values]
    return (batch.epoch, batch.step, batch.ids.tolist(), batch.valid.tolist(), fields, more)


def drain(batches: Any) -> list[Any]:
    return [facts(batch) for batch in batches]


def through(state: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """What comes of a state that is saved."""
    written = json.dumps(state)
    assert len(written) < 1024
    assert json.loads(written) == state
    torch.save({"model": torch.zeros(2), "loader": state}, tmp_path / "saved.pt")
    again: dict[str, Any] = torch.load(tmp_path / "saved.pt", weights_only=True)["loader"]
    assert again == state
    return again


# Of the cases, one of each kind of order; of the samplers, one of each way that the loader takes them.
KINDS = (
    *("full", "block of shards", "window", "mixture, linear", "tokens", "pack"),
    *("sampler", "RandomSampler, rounds"),
)


@pytest.mark.parametrize("name", mostly(CASES, *KINDS))
def test_a_state_of_every_step(name: str, data: Data, tmp_path: Path) -> None:
    states: list[tuple[int, int, Any]] = []  # epoch, batches of it that were seen, state
    with loader_of(name, data) as loader:
        states.append((0, 0, through(loader.state_dict(), tmp_path)))
        epochs: list[list[Any]] = []
        for epoch in range(2):
            epochs.append([])
            iterator = iter(loader)
            states.append((epoch, 0, through(loader.state_dict(), tmp_path)))
            for batch in iterator:
                epochs[-1].append(facts(batch))
                states.append((epoch, len(epochs[-1]), through(loader.state_dict(), tmp_path)))
            assert len(epochs[-1]) >= 2
        epochs.append(drain(loader))
        assert len(loader) == len(epochs[2])
    assert all(batch[0] == e for e, batches in enumerate(epochs) for batch in batches)
    with loader_of(name, data) as other:
        for epoch, seen, state in states:
            steps = len(epochs[epoch])
            if not forms.ALL and epoch and seen not in (0, 1, steps // 2, steps):
                continue
            other.load_state_dict(state)
            assert other.state_dict() == state
            assert drain(other) == epochs[epoch][seen:], (epoch, seen)
            if seen in (0, 1, len(epochs[epoch])):
                assert drain(other) == epochs[epoch + 1]
    with loader_of(name, data) as last:  # as new: nothing is remembered from elsewhere
        epoch, seen, state = states[len(states) // 2]
        last.load_state_dict(state)
        assert drain(last) == epochs[epoch][seen:]


# Cases of several kinds, where all of them would say the same again.
FEW = ["full", "weights", "mixture, single", "tokens", "pack", "sampler", "batch_sampler", "RandomSampler"]


@pytest.mark.parametrize("name", mostly(FEW, "mixture, single", "sampler"))
def test_a_pass_that_is_given_up_and_passes_side_by_side(name: str, data: Data) -> None:
    with loader_of(name, data) as loader:
        epochs = [drain(loader) for _ in range(4)]
    with loader_of(name, data) as loader:
        first = iter(loader)
        seen = [facts(next(first)), facts(next(first))]
        second = iter(loader)
        both = list(zip(drain([next(second)]), drain([next(first)]), strict=True))
        assert both == [(epochs[1][0], epochs[0][2])]
        state = loader.state_dict()
        assert (state["epoch"], seen) == (1, epochs[0][:2])  # the pass begun last is the one that counts
        assert drain(first) == epochs[0][3:]
        assert loader.state_dict() == state
        del second
        assert drain(loader) == epochs[2]
        loader.load_state_dict(state)
        assert drain(loader) == epochs[1][1:]
        loader.load_state_dict(state)
        loader.set_epoch(1)
        assert drain(loader) == epochs[1][1:]
        loader.load_state_dict(state)
        loader.set_epoch(3)
        assert drain(loader) == epochs[3]


@pytest.mark.parametrize("name", mostly(FEW, "pack", "batch_sampler"))
def test_a_loader_that_is_pickled_stands_where_it_stood(name: str, data: Data) -> None:
    with loader_of(name, data) as loader:
        epochs = [drain(loader) for _ in range(3)]
    loader = loader_of(name, data)
    loader = pickle.loads(pickle.dumps(loader))
    iterator = iter(loader)
    assert facts(next(iterator)) == epochs[0][0]
    state = loader.state_dict()
    loader.close()
    again = pickle.loads(pickle.dumps(loader))
    assert again.state_dict() == state
    assert drain(again) == epochs[1]
    again.load_state_dict(state)
    again.close()
    restored = pickle.loads(pickle.dumps(again))
    assert restored.state_dict() == state
    assert drain(restored) == epochs[0][1:]
    assert drain(restored) == epochs[1]
    restored.close()


def pickled(loader: Any) -> Any:
    return pickle.loads(pickle.dumps(loader))


@pytest.mark.parametrize(
    ("name", "copied"),
    mostly(
        [
            *((name, copy.copy) for name in FEW if "ampler" not in name),  # it shares the user's sampler
            *((name, copied) for name in FEW for copied in (copy.deepcopy, pickled)),
        ],
        *(("pack", copy.copy), ("tokens", copy.deepcopy), ("sampler", copy.deepcopy), ("mixture, single", pickled)),
    ),
)
def test_copies_of_a_loader_in_use_are_on_their_own(name: str, copied: Any, data: Data) -> None:
    """Their state is that of the loader, and neither moves the other; torch takes copies at any time too."""
    with loader_of(name, data) as loader:
        epochs = [drain(loader) for _ in range(3)]
    loader = loader_of(name, data)
    iterator = iter(loader)
    assert facts(next(iterator)) == epochs[0][0]
    other = copied(loader)
    state = loader.state_dict()
    assert other.state_dict() == state
    assert facts(next(iterator)) == epochs[0][1]
    assert other.state_dict() == state
    assert drain(other) == epochs[1]
    assert drain(iterator) == epochs[0][2:]
    assert drain(loader) == epochs[1]
    other.load_state_dict(state)
    assert drain(other) == epochs[0][1:]
    other.close()
    loader.close()


PLACED = [name for name, make in CASES.items() if "ampler" not in name and name not in ("list", "lists", "single")]


def rows(batch: Any) -> list[Any]:
    """A batch row by row: ids, whether they are valid, and the bytes; a packed row holds several samples."""
    values = list(batch.values()) if isinstance(batch, dict) else list(batch)
    ids, valid = batch.ids.tolist(), batch.valid.tolist()
    if (ends := getattr(batch, "cu_seqlens", None)) is None:
        return [
            (i, ok, [plain(value[r]) for value in values]) for r, (i, ok) in enumerate(zip(ids, valid, strict=True))
        ]
    count, width = values[0].shape
    assert batch.position_ids.shape == (count, width)
    cut: list[list[Any]] = [[] for _ in range(count)]
    begins = ends.tolist()
    assert begins[-1] == count * width
    for i, ok, begin, end in zip(ids, valid, begins[:-1], begins[1:], strict=True):
        if begin < end:  # an empty text has no visible position between two rows
            assert begin // width == (end - 1) // width
            cut[begin // width].append((i, ok, end - begin))
    return [(cut[r], plain(values[0][r]), plain(batch.position_ids[r])) for r in range(count)]


def valid(row: Any) -> bool:
    return all(ok for i, ok, _ in row[0] if i >= 0) if isinstance(row[0], list) else row[1]


def dealt(name: str, data: Data, world: int, state: Any, **more: Any) -> tuple[list[Any], list[int], Any]:
    """What the ranks of a world get together, in the order of places; rows of every step; the state of the middle."""
    made = "tokens" in name or name == "mixture, single"
    ranks: list[list[list[Any]]] = []
    states = []
    for rank in range(world):
        with loader_of(name, data, rank=rank, world_size=world, **more) as loader:
            if state is not None:
                loader.load_state_dict(state)
            ranks.append([])
            for step, batch in enumerate(loader):
                ranks[-1].append(rows(batch))
                if step == 1:
                    states.append(loader.state_dict())
            states.append(loader.state_dict())
    assert all(states[k] == states[k % (len(states) // world)] for k in range(len(states)))
    together, steps = [], []
    for step in zip(*ranks, strict=True):
        if made:  # the order makes the batches, and they are dealt in turn
            found = [row for part in step for row in part]
        else:
            assert len({len(part) for part in step}) == 1
            found = [row for place in zip(*step, strict=True) for row in place]
        found = [row for row in found if valid(row)]
        together += found
        steps.append(len(found))
    return together, steps, states[0]


@pytest.mark.parametrize("name", mostly(PLACED, "block", "mixture, linear", "pack"))
def test_worlds_share_one_order(name: str, data: Data) -> None:
    plan, _, _ = dealt(name, data, 1, None)
    for world in (2, 3):
        together, steps, state = dealt(name, data, world, None)
        if "drop" in name:
            assert together == plan[: len(together)]
            assert len(plan) - len(together) < 8 * world
        else:
            assert together == plan
        for other in (1, 2, 5) if forms.ALL else {2: (5,), 3: (1, 2)}[world]:
            rest, _, _ = dealt(name, data, other, state)
            assert rest == plan[sum(steps[:2]) :][: len(rest)]
            assert "drop" in name or len(rest) == len(plan) - sum(steps[:2])


@pytest.mark.parametrize("name", mostly([name for name in PLACED if "tokens" not in name], "drop", "pack"))
def test_a_global_batch_is_the_same_over_any_world(name: str, data: Data) -> None:
    if name == "mixture, single":  # a global batch is of one dataset; dealt() would put batches side by side
        pytest.skip("the batches of ranks are parts of one")
    alone = dealt(name, data, 1, None, global_batch_size=12)
    for world in (2, 3, 6) if forms.ALL else (2, 6):
        assert dealt(name, data, world, None, global_batch_size=12)[:2] == alone[:2]
    half = alone[2]
    assert half["position"] == 24
    for world in (1, 3, 4) if forms.ALL else (3,):
        rest, steps, _ = dealt(name, data, world, half, global_batch_size=12)
        assert (rest, steps) == (alone[0][sum(alone[1][:2]) :], alone[1][2:])


@long
def test_a_mixture_of_single_global_batches_is_the_same_over_any_world(data: Data) -> None:
    def together(world: int) -> list[list[int]]:
        ranks = []
        for rank in range(world):
            with loader_of("mixture, single", data, rank=rank, world_size=world, global_batch_size=12) as loader:
                ranks.append([b.ids[b.valid].tolist() for b in loader])
        return [sorted(i for part in step for i in part) for step in zip(*ranks, strict=True)]

    alone = together(1)
    assert all(len({i >= 30 for i in batch}) == 1 for batch in alone)
    for world in (2, 3, 6):
        assert together(world) == alone


SETTINGS: list[dict[str, Any]] = [
    {"num_workers": 1, "prefetch": 1},
    {"num_workers": 5, "prefetch": 9},
    {"num_workers": 2, "prefetch_factor": 1, "memory": "16MiB"},
]


@pytest.mark.parametrize("name", mostly(CASES, *KINDS))
def test_settings_do_not_matter(name: str, data: Data) -> None:
    with loader_of(name, data) as loader:
        expected = [drain(loader), drain(loader)]
    number = list(CASES).index(name)  # the short form has one of them in turn
    for settings in SETTINGS if forms.ALL else (SETTINGS[number % len(SETTINGS)],):
        with loader_of(name, data, **settings) as loader:
            assert [drain(loader), drain(loader)] == expected, settings


@pytest.mark.parametrize(
    "name",
    mostly(
        [name for name in CASES if name not in ("none", "fill", "drop", "single", "list")],
        *("mixture, single", "pack", "batch_sampler"),
    ),
)
def test_killing_the_engine_changes_nothing(name: str, data: Data) -> None:
    with loader_of(name, data) as loader:
        expected = drain(loader)
        loader.set_epoch(0)
        if callable(getattr(loader.sampler, "set_epoch", None)):
            loader.sampler.set_epoch(0)
        seen = []
        for step, batch in enumerate(loader):
            seen.append(facts(batch))
            if step in (0, len(expected) // 2):
                kill(engine())
        assert seen == expected
        receipt = loader.receipt()["parts"]
        assert [part["sum"] for part in receipt[:1]] == [part["sum"] for part in receipt[1:]]


@thinned
@pytest.mark.parametrize(("long", "width"), [("split", 24), ("truncate", 24), ("refuse", 40)])
@pytest.mark.parametrize("world", [1, 3])
def test_packed_rows_hold_every_text_once(long: str, width: int, world: int, data: Data) -> None:
    found: dict[int, dict[int, bytes]] = {i: {} for i in range(61)}  # the parts of a text, by their first token
    for rank in range(world):
        with loader_of("pack", data, pack=width, long=long, rank=rank, world_size=world) as loader:
            for batch in loader:
                assert (batch.cu_seqlens.dtype, batch.position_ids.dtype) == (torch.int32, torch.int32)
                ends = batch.cu_seqlens.tolist()
                flat, places = batch[0].flatten().numpy().tobytes(), batch.position_ids.flatten().tolist()
                assert (ends[0], ends[-1], len(flat) % width) == (0, len(flat), 0)
                for i, ok, begin, end in zip(
                    batch.ids.tolist(), batch.valid.tolist(), ends[:-1], ends[1:], strict=True
                ):
                    if i < 0:
                        assert not ok
                        assert not (any(flat[begin:end]))
                    elif ok:
                        at = places[begin] if begin < end else 0
                        assert places[begin:end] == list(range(at, at + end - begin))
                        assert at not in found[i]
                        found[i][at] = flat[begin:end]
    limit = width if long == "truncate" else max(SIZES)
    for i, parts in found.items():
        assert b"".join(parts[at] for at in sorted(parts)) == text(i)[:limit]
        assert len(parts) == max(1, -(-len(text(i)[:limit]) // width))
