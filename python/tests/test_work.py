"""The loop of a worker, in real processes, with a fake engine at the other end of the socket."""

from __future__ import annotations

import base64
import multiprocessing
import os
import pickle
import random
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import time
import types
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import gone, wait_until
from fakes import Crew
from forms import long, mostly, param, thinned
from torch.utils.data import ConcatDataset, StackDataset, Subset, TensorDataset, default_collate, get_worker_info

from stoker import _frames, _gather, _inside, _keyed, _values
from stoker._batch import DictBatch

HERE = Path(__file__).parent


class Numbers:
    """Samples that say their number in several ways."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> Any:
        return {"x": torch.full((2, 3), float(index)), "n": index, "t": f"t{index}" * (index % 4), "a": np.int16(index)}


class Calls:
    """A dataset of a function."""

    def __init__(self, call: Callable[[int], Any]) -> None:
        self.call = call

    def __getitem__(self, index: int) -> Any:
        return self.call(index)


def same(batch: Any, dataset: Any, samples: list[int]) -> None:
    expected = default_collate([dataset[i] for i in samples])
    assert list(batch) == list(expected)
    for key in expected:
        if isinstance(expected[key], torch.Tensor):
            assert batch[key].dtype == expected[key].dtype
            assert torch.equal(batch[key], expected[key])
        else:
            assert batch[key] == expected[key]


@thinned
@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_rows_of_any_worker(workers: int, chunk: int) -> None:
    dataset = Numbers()
    samples = [5, 3, 999, 0, 7, 7, 12, 1, 2, 44, 45]
    with Crew(dataset, workers) as crew:
        batch, facts = crew.batch(samples, chunk=chunk)
    assert type(batch) is DictBatch
    same(batch, dataset, samples)
    assert facts["ids"].tolist() == samples


@pytest.mark.parametrize("method", mostly(["spawn", "forkserver"], "forkserver"))
def test_other_start_methods(method: str) -> None:
    with Crew(Numbers(), 1, method=method, seeding="worker") as crew:
        batch, _ = crew.batch([3, 4])
    same(batch, Numbers(), [3, 4])


def test_the_sample_that_was_shown_is_not_made_again() -> None:
    made = multiprocessing.Value("i", 0)

    def call(index: int) -> Any:
        made.value += 1
        return index

    with Crew(Calls(call)) as crew:
        batch, _ = crew.batch([8, 9])
    assert batch.tolist() == [8, 9]
    assert made.value == 2


def test_rows_that_are_not_consecutive() -> None:
    with Crew(Numbers()) as crew:
        worker = crew.workers[0]
        shape = worker.show(crew.tasks([0])[0])
        offsets, _ = crew.layout(shape["sizes"], 16)
        layout = worker.learn(1, offsets, shape)
        tasks = [(row, row, 50 + row, 1, 0) for row in (9, 2, 3, 4, 11)]
        worker.rows(1, layout, tasks, batch=77)
        done = worker.done()
        assert done["batch"] == 77
        assert [row["row"] for row in done["rows"]] == [9, 2, 3, 4, 11]
        memory = crew.memories[1]
        for row in (9, 2, 3, 4, 11):
            assert struct.unpack_from("<q", memory, offsets[1] + 8 * row) == (50 + row,)
        assert struct.unpack_from("<q", memory, offsets[1] + 8 * 5) == (0,)  # nobody asked for it


def test_a_layout_without_its_structure() -> None:
    with Crew(Numbers(), 2) as crew:
        shape = crew.workers[0].show(crew.tasks([0])[0])
        offsets, _ = crew.layout(shape["sizes"], 4)
        for number, worker in enumerate(crew.workers):
            layout = worker.learn(1, offsets, shape, told=False)
            worker.rows(1, layout, [(number, number, 60 + number, 1, 0)])
            assert worker.done()["rows"][0]["status"] == 0
        assert struct.unpack_from("<2q", crew.memories[1], offsets[1]) == (60, 61)


def test_slots_come_and_go() -> None:
    with Crew(Numbers()) as crew:
        worker = crew.workers[0]
        shape = worker.show(crew.tasks([0])[0])
        offsets, _ = crew.layout(shape["sizes"], 4)
        layout = worker.learn(1, offsets, shape)
        before = None
        for _ in range(20):
            worker.rows(1, layout, crew.tasks([1, 2]))
            worker.done()
            before = before or memory_and_files(worker.process.pid)
            worker.send(_frames.FREE, struct.pack("<I", 1))
            worker.slots.clear()
            worker.give(1)
        worker.rows(1, layout, crew.tasks([1, 2]))
        worker.done()
        assert memory_and_files(worker.process.pid) == before


def memory_and_files(pid: int) -> tuple[int, int]:
    maps = Path(f"/proc/{pid}/maps").read_text()
    files = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    return maps.count("memfd:slot"), sum("memfd:slot" in file for file in files)


# Bad samples.


class Refused(ValueError):
    def __init__(self, number: int, why: str) -> None:
        super().__init__(number, why)


def fails(index: int) -> Any:
    if index == 3:
        raise Refused(index, "odd")
    if index == 5:
        raise ConnectionError("gone")
    if index == 6:
        return None
    if index == 7:
        return torch.zeros(9), 7
    if index == 8:
        raise SystemExit(3)
    if index == 11:
        raise StopIteration
    if index == 9:
        raise type("Local", (Exception,), {})("not to be pickled")
    return torch.full((2,), index), index


def answers(crew: Crew, samples: list[int]) -> list[dict[str, Any]]:
    found = answers_of(crew, samples)
    offsets, _ = crew.layout([16, 8], len(samples))
    assert [row["row"] for row in found] == list(range(len(samples)))
    numbers = struct.unpack_from(f"<{len(samples)}q", crew.memories[1], offsets[1])
    for row, number in enumerate(samples):
        if found[row]["status"] == 0:
            assert numbers[row] == number
    return found


def test_bad_samples_do_not_disturb_others() -> None:
    with Crew(Calls(fails)) as crew:
        found = answers(crew, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])
    assert [row["status"] for row in found] == [0, 0, 1, 0, 1, 2, 2, 1, 1, 0, 1]
    refused = found[2]["error"]
    assert refused["what"] == "dataset[3] raised Refused: (3, 'odd')"
    assert refused["kind"] == "Refused"
    assert refused["retry"] is True
    assert refused["code"] == "damaged"
    assert refused["text"].startswith("Traceback")
    assert "in fails" in refused["text"]
    assert "stoker/_work.py" not in refused["text"]
    error = pickle.loads(base64.b64decode(refused["pickle"]))
    assert type(error) is Refused
    assert error.args == (3, "odd")
    assert found[4]["error"]["retry"] is False
    assert found[4]["error"]["code"] == "unreadable"
    assert "default_collate: batch must contain tensors" in found[5]["error"]["what"]
    assert "NoneType" in found[5]["error"]["what"]
    assert "sample 7 does not fit" in found[6]["error"]["what"]
    assert "its field [0] is a float32 tensor of shape (9,)" in found[6]["error"]["what"]
    assert "in sample 0" in found[6]["error"]["what"]
    assert "collate_fn" in found[6]["error"]["hint"]
    assert found[7]["error"]["kind"] == "SystemExit"
    assert found[8]["error"]["kind"] == "Local"
    assert found[8]["error"]["pickle"] == ""
    assert found[10]["error"]["kind"] == "StopIteration"


def test_the_first_sample_may_be_bad() -> None:
    with Crew(Calls(fails)) as crew:
        worker = crew.workers[0]
        for number, words in ((3, "Refused"), (6, "NoneType")):
            worker.rows(0, 0, crew.tasks([number]))
            (row,) = worker.done()["rows"]
            assert row["status"] in (1, 2)
            assert words in row["error"]["what"]
        assert worker.show(crew.tasks([1])[0])["sizes"] == (16, 8)


def test_big_samples_are_written_apart() -> None:
    dataset = Calls(lambda index: (torch.full((40, 40), float(index)), index))
    with Crew(dataset) as crew:
        batch, _ = crew.batch(list(range(20)), chunk=20)
    assert batch[0].mean((1, 2)).tolist() == list(range(20))


# Random numbers.


def draws(index: int) -> Any:
    return random.random(), np.random.random(), torch.rand(2), index


class Generator:
    """A dataset that is given its generator."""

    def __getitem__(self, index: int, rng: Any = None) -> Any:
        return rng.random(3)


@pytest.mark.parametrize("dataset", [Calls(draws), param(Generator())])
def test_draws_do_not_depend_on_workers(dataset: Any) -> None:
    found = []
    for workers, chunk in ((1, 100), (2, 3), (5, 1)):
        with Crew(dataset, workers) as crew:
            batch, _ = crew.batch(list(range(20)), chunk=chunk)
        found.append(batch if isinstance(batch, list) else [batch])
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))
    assert len(torch.unique(found[0][0])) >= 20
    with Crew(dataset, 1) as crew:
        batch, _ = crew.batch(list(range(20)), epoch=1)
    assert not torch.equal(batch[0] if isinstance(batch, list) else batch, found[0][0])


def test_a_key_seeds_as_documented() -> None:
    with Crew(Calls(draws)) as crew:
        batch, _ = crew.batch([4, 5])
        key = crew.key(0, 1)
    random.seed(key)
    np.random.seed(key & 0xFFFFFFFF)
    torch.default_generator.manual_seed(key if key < 1 << 63 else key - (1 << 64))
    expected = draws(5)
    assert batch[0][1] == expected[0]
    assert batch[1][1] == expected[1]
    assert torch.equal(batch[2][1], expected[2])
    assert random.Random(key).random() == expected[0]


def test_torchs_rule_of_seeds() -> None:
    def call(index: int) -> Any:
        info = get_worker_info()
        assert info is not None
        return (
            info.seed,
            info.id,
            info.num_workers,
            torch.rand(1),
            torch.get_num_threads(),
            int(id(info.dataset) == id(held[0])),
        )

    held = [Calls(call)]
    with Crew(held[0], 2, seeding="worker", seed=100) as crew:
        batch, _ = crew.batch(list(range(4)), chunk=2)
    assert batch[0].tolist() == [100, 100, 101, 101]
    assert batch[1].tolist() == [0, 0, 1, 1]
    assert batch[2].tolist() == [2] * 4
    torch.manual_seed(100)
    assert batch[3][0] == torch.rand(1)
    torch.manual_seed(101)
    assert batch[3][2] == torch.rand(1)
    assert batch[4].tolist() == [1] * 4
    assert batch[5].tolist() == [1] * 4


class Compose:
    """As Albumentations': it draws from a generator of its own."""

    def __init__(self) -> None:
        self.random_generator = np.random.default_rng(1)

    def set_random_seed(self, seed: int) -> None:
        self.random_generator = np.random.default_rng(seed)


class Augmented:
    def __init__(self, transform: Any) -> None:
        self.inner = types.SimpleNamespace(steps=[{"transform": transform}])

    def __getitem__(self, index: int) -> Any:
        return self.inner.steps[0]["transform"].random_generator.random(2)


def test_generators_of_albumentations_are_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "albumentations", types.ModuleType("albumentations"))
    kind = type("Compose", (Compose,), {"__module__": "albumentations.core.composition"})
    found = []
    for workers in (1, 3):
        with Crew(Augmented(kind()), workers) as crew:
            found.append(crew.batch(list(range(6)), chunk=1)[0])
    assert torch.equal(found[0], found[1])
    assert len(torch.unique(found[0])) == 12


def test_what_draws_nothing_is_not_seeded() -> None:
    tensors = TensorDataset(torch.arange(5))
    quiet = [[1, 2], (1,), range(3), np.zeros(3), torch.zeros(3), tensors, Subset(tensors, [1])]
    quiet += [ConcatDataset([tensors, tensors]), StackDataset(tensors, tensors), StackDataset(a=tensors)]
    assert not any(map(_keyed.may_draw, quiet))
    assert all(map(_keyed.may_draw, [Numbers(), Subset(Numbers(), [1]), ConcatDataset([tensors, Numbers()])]))  # type: ignore[arg-type,list-item]


def test_put_back() -> None:
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[index]
    with _keyed.put_back():
        _keyed.Seeder(Numbers()).seed(3)
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]  # type: ignore[index]
    assert torch.equal(torch.get_rng_state(), before[2])


# Rows of arrays.


@pytest.mark.parametrize(
    "dataset",
    [
        TensorDataset(torch.arange(60).view(20, 3), torch.rand(20), torch.rand(20, 2, 2).half()),
        torch.rand(20, 5),
        torch.rand(20),
        np.random.default_rng(1).random((20, 4)),
        np.arange(20),
        Subset(TensorDataset(torch.arange(40)), list(range(30, 10, -1))),
        Subset(np.arange(30.0), np.arange(20)),  # type: ignore[arg-type]
    ],
)
def test_rows_of_arrays(dataset: Any) -> None:
    samples = [3, 0, 19, 19, 7, 8, 9, 1]
    expected = default_collate([dataset[i] for i in samples])
    with Crew(dataset, 2) as crew:
        found, _ = crew.batch(samples)
    for a, b in zip(*((one if isinstance(one, list) else [one]) for one in (found, expected)), strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


def test_rows_of_arrays_are_gathered_and_their_ends_noticed() -> None:
    for dataset in (TensorDataset(torch.arange(20)), torch.arange(20.0), np.arange(20)):
        structure, _ = _values.split(dataset[0])
        gather = _gather.gatherer(dataset, structure)
        assert gather is not None
        with pytest.raises(IndexError):
            gather(memoryview(bytearray(4096)), [0], 0, [1, 20])
        with Crew(dataset) as crew:
            found = answers_of(crew, [1, 20, 2])
        assert [row["status"] for row in found] == [0, 1, 0]
        assert found[1]["error"]["kind"] == "IndexError"
        assert "dataset[20] raised IndexError" in found[1]["error"]["what"]
        assert "len()" in found[1]["error"]["hint"]
    assert _gather.gatherer([1, 2], _values.split(1)[0]) is None
    assert _gather.gatherer(np.arange(4), _values.split(1)[0]) is None


def answers_of(crew: Crew, samples: list[int]) -> list[dict[str, Any]]:
    worker = crew.workers[0]
    shape = worker.show(crew.tasks([0])[0])
    offsets, _ = crew.layout(shape["sizes"], len(samples))
    worker.rows(1, worker.learn(1, offsets, shape), crew.tasks(samples))
    found: list[dict[str, Any]] = worker.done()["rows"]
    return found


def test_the_page_says_which_row_is_in_work() -> None:
    page = os.memfd_create("page")

    def call(index: int) -> Any:
        return list(struct.unpack("<QI", os.pread(page, 12, 0)))

    with Crew(Calls(call), page=page) as crew:
        worker = crew.workers[0]
        shape = worker.show(crew.tasks([0])[0])
        offsets, _ = crew.layout(shape["sizes"], 3)
        worker.rows(1, worker.learn(1, offsets, shape), [(row, row, 5, 1, 0) for row in (0, 1, 2)], batch=1 << 40)
        worker.done()
        memory = crew.memories[1]
        assert struct.unpack_from("<3q", memory, offsets[0]) == (1 << 40,) * 3
        assert struct.unpack_from("<3q", memory, offsets[1]) == (1, 2, 3)
        assert os.pread(page, 16, 0)[8:] == bytes(8)


# Whole batches.


def whole(crew: Crew, samples: list[int]) -> Any:
    return crew.workers[0].whole(crew.tasks(samples))[0]


def test_whole_batches() -> None:
    def collate(samples: list[Any]) -> Any:
        return [sample["t"] for sample in samples], torch.stack([sample["x"] for sample in samples]), None

    with Crew(Numbers(), whole=True, collate_fn=collate) as crew:
        texts, images, nothing = batch = whole(crew, [5, 6])
        assert type(batch).__name__ == "Batch"
        assert batch.ids.tolist() == [5, 6]
        assert texts == ["t5", "t6t6"]
        assert torch.equal(images[1], torch.full((2, 3), 6.0))
        assert nothing is None


def test_the_default_collate_of_a_whole_batch() -> None:
    with Crew(Numbers(), whole=True) as crew:
        same(whole(crew, [5, 6]), Numbers(), [5, 6])


def test_one_sample_is_converted_alone() -> None:
    from torch.utils.data import default_convert

    with Crew(Numbers(), whole=True, single=True, collate_fn=default_convert) as crew:
        found = whole(crew, [6])
    assert found["n"] == 6
    assert found["a"].dtype == torch.int16


class Items(Numbers):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        if 13 in indices:
            raise KeyError(13)
        return [(index, len(indices), torch.rand(1)) for index in indices]


def test_items() -> None:
    with Crew(Items(), whole=True, items=True) as crew:
        found = whole(crew, [3, 4, 5])
        assert found[0].tolist() == [3, 4, 5]
        assert found[1].tolist() == [3, 3, 3]
        assert torch.equal(found[2], whole(crew, [3, 4, 5])[2])
        worker = crew.workers[0]
        worker.rows(0, 0, crew.tasks([13]), how=1, batch=6)
        (row,) = worker.done()["rows"]
        assert row["row"] == 0xFFFFFFFF
        assert row["error"]["what"] == "__getitems__ raised KeyError: 13"


def test_bad_rows_of_a_whole_batch_are_replaced() -> None:
    def collate(samples: list[Any]) -> Any:
        return [sample[1] for sample in samples]

    with Crew(Calls(fails), whole=True, collate_fn=collate) as crew:
        worker = crew.workers[0]
        worker.rows(0, 0, crew.tasks([1, 3, 2, 5]), how=1, batch=9)
        rows = worker.done()["rows"]
        assert [(row["row"], row["status"]) for row in rows] == [(1, 1), (3, 1)]
        worker.rows(0, 0, [(1, 70, 3, 1, 1), (3, 71, 4, 1, 1)], how=2, batch=9)
        rows = worker.done()["rows"]
        assert [(row["row"], row["status"]) for row in rows] == [(1, 1)]
        worker.rows(0, 0, [(1, 72, 10, 1, 2)], how=2, batch=9)
        assert worker.done()["rows"] == []
        worker.send(_frames.COLLATE, struct.pack("<QI5IQ", 9, 5, 0, 1, 2, 3, 0, 0))
        kind, need = worker.next()
        assert kind == _frames.NEED
        assert worker.take(need, [1])[0] == [1, 10, 2, 4, 1]


def test_a_blob_that_does_not_fit_is_asked_for_again() -> None:
    with Crew(Numbers(), whole=True, collate_fn=lambda samples: b"x" * 5000) as crew:
        worker = crew.workers[0]
        worker.rows(0, 0, crew.tasks([1]), how=1, batch=9)
        kind, need = worker.next()
        worker.give(2)
        worker.send(_frames.FITS, struct.pack("<QIQQ", 9, 2, 0, 100))
        assert worker.next() == (kind, need)
        assert worker.take(need, [1])[0] == b"x" * 5000


def test_a_dropped_batch_is_forgotten() -> None:
    with Crew(Numbers(), whole=True) as crew:
        worker = crew.workers[0]
        worker.rows(0, 0, crew.tasks([1]), how=1, batch=9)
        assert worker.next()[0] == _frames.NEED
        worker.send(_frames.DROP, struct.pack("<Q", 9))
        worker.send(_frames.DROP, struct.pack("<Q", 10))
        worker.give(2)
        worker.send(_frames.FITS, struct.pack("<QIQQ", 9, 2, 0, 1 << 20))  # crossed the drop: no answer
        same(whole(crew, [2]), Numbers(), [2])


@pytest.mark.parametrize(
    ("collate", "words"),
    [
        (lambda samples: 1 / 0, "collate_fn raised ZeroDivisionError: division by zero"),
        (
            lambda samples: (sample for sample in samples),
            "the batch cannot be passed to the trainer: cannot pickle 'gen",
        ),
        (lambda samples: {"a": [socket.socket()]}, "the batch['a'][0]"),
    ],
)
def test_a_collate_function_that_fails(collate: Any, words: str) -> None:
    with Crew(Numbers(), whole=True, collate_fn=collate) as crew:
        worker = crew.workers[0]
        worker.rows(0, 0, crew.tasks([1]), how=1, batch=9)
        (row,) = worker.done()["rows"]
        assert row["row"] == 0xFFFFFFFF
        assert words in row["error"]["what"]


def test_draws_of_a_collate_function() -> None:
    def collate(samples: list[Any]) -> Any:
        return random.random(), torch.rand(1)

    with Crew(Numbers(), whole=True, collate_fn=collate) as crew:
        found = [whole(crew, samples) for samples in ([1, 2], [1, 2])]
        key = crew.key(0, 0)
    assert found[0][0] == found[1][0] == random.Random(_keyed.collate_key(key)).random()
    assert torch.equal(found[0][1], found[1][1])


def test_a_collate_function_that_takes_a_generator() -> None:
    def collate(samples: list[Any], rng: Any) -> Any:
        return rng.random()

    with Crew(Numbers(), whole=True, collate_fn=collate) as crew:
        found = whole(crew, [1])
        assert found == _keyed.generator(_keyed.collate_key(crew.key(0, 0))).random()


def test_default_collate_uses_plain_memory() -> None:
    from torch.utils.data._utils.collate import collate_tensor_fn

    def collate(samples: list[Any]) -> Any:
        tensors = [torch.ones(3), torch.ones(3)]
        shared = [default_collate(tensors), collate_tensor_fn(tensors)]
        try:
            default_collate([torch.eye(3).to_sparse()])
        except RuntimeError as error:
            return [value.is_shared() for value in shared], shared, str(error)

    with Crew(Numbers(), whole=True, collate_fn=collate) as crew:
        shared, tensors, error = whole(crew, [1])
    assert shared == [False, False]
    assert all(torch.equal(tensor, torch.ones(2, 3)) for tensor in tensors)
    assert "sparse tensors are not currently supported" in error


# Beginnings and ends.


def test_a_worker_init_fn() -> None:
    def init(worker: int) -> None:
        info = get_worker_info()
        assert info is not None
        info.dataset.call = lambda index: index * 10 + worker  # type: ignore[attr-defined]

    with Crew(Calls(draws), 2, worker_init_fn=init) as crew:
        assert crew.batch([1, 2, 3, 4], chunk=2)[0].tolist() == [10, 20, 31, 41]


def test_a_worker_init_fn_that_raises() -> None:
    def init(worker: int) -> None:
        raise ConnectionError(f"no database for {worker}")

    with Crew(Numbers(), worker_init_fn=init) as crew:
        kind, answer = crew.workers[0].next()
        assert kind == _frames.FAILED
        assert "ConnectionError: no database for 0" in answer["what"]
        assert "in init" in answer["text"]
        with pytest.raises(EOFError):
            crew.workers[0].next()


class Unfound:
    """Cannot be unpickled: its module is not there."""

    def __reduce__(self) -> Any:
        return __import__, ("no_such_module",)


def test_a_dataset_whose_module_a_spawned_worker_lacks() -> None:
    with Crew(Unfound(), method="spawn") as crew:
        kind, answer = crew.workers[0].next()
        assert kind == _frames.FAILED
        assert "ModuleNotFoundError: No module named 'no_such_module'" in answer["what"]


def test_signals_of_the_group_are_ignored() -> None:
    def call(index: int) -> Any:
        return [
            int(signal.getsignal(number) == signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        ] + [int(signal.getsignal(signal.SIGALRM) == signal.SIG_DFL)]

    before = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        with Crew(Calls(call)) as crew:
            batch, _ = crew.batch([1])
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(crew.workers[0].process.pid, number)
            crew.batch([1])
    finally:
        signal.signal(signal.SIGALRM, before)
    assert [int(value) for value in batch] == [1, 1, 1, 1]


def test_the_stack_of_a_worker_can_be_asked_for() -> None:
    def slow_sample_of_the_user(index: int) -> Any:
        time.sleep(60 if index else 0)
        return 0

    crew = Crew(Calls(slow_sample_of_the_user))
    worker = crew.workers[0]
    shape = worker.show(crew.tasks([0])[0])
    worker.rows(1, worker.learn(1, [0], shape), crew.tasks([1]))
    wait_until(lambda: ask(worker.process.pid, crew.page), "there is no stack")
    worker.process.kill()
    worker.process.join()
    for fd in (crew.page, *crew.fds.values()):
        os.close(fd)
    worker.socket.close()


def ask(pid: int, page: int) -> bool:
    os.kill(pid, _inside.STACK_SIGNAL)
    return b"slow_sample_of_the_user" in os.pread(page, 1 << 16, _frames.PAGE_BYTES)


SCRIPT = """
import os, sys, time, threading
sys.path.insert(0, {here!r})
from fakes import Crew
from test_work import Numbers
engine = os.fork()
if not engine:
    time.sleep(600)
    os._exit(0)
made = []
def begin():
    made.append(Crew(Numbers(), 2, engine=engine, direct={direct}))
    for worker in made[0].workers:
        worker.show(made[0].tasks([0])[0])
if {direct}:
    begin()
else:
    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    time.sleep(0.3)
    for worker in made[0].workers:  # they live on when the thread that started them has ended
        worker.show(made[0].tasks([0])[0])
holder = os.fork()  # holds all sockets, so that nobody sees them close
if not holder:
    time.sleep(600)
    os._exit(0)
print(os.getpid(), engine, holder, *(worker.process.pid for worker in made[0].workers), flush=True)
time.sleep(600)
"""


@long  # tests/test_python_workers.py kills trainers and engines with workers of a loader
@pytest.mark.parametrize(("killed", "direct"), list(product(["trainer", "engine"], [True, False])))
def test_workers_end_with_the_trainer_and_with_the_engine(killed: str, direct: bool) -> None:
    script = textwrap.dedent(SCRIPT.format(here=str(HERE), direct=direct))
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    trainer, engine, holder, *workers = map(int, process.stdout.readline().split())
    try:
        os.kill(trainer if killed == "trainer" else engine, signal.SIGKILL)
        wait_until(lambda: all(map(ended, workers)), "a worker is left")
    finally:
        for pid in (engine, holder, trainer):
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def ended(pid: int) -> bool:
    """Gone, or waiting for a trainer that does not look."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_kernel_without_pidfds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    test = subprocess.Popen(["sleep", "600"])
    crew = Crew(Numbers(), engine=test.pid)
    worker = crew.workers[0]
    worker.show(crew.tasks([0])[0])
    test.kill()
    test.wait()
    worker.process.join(30)
    assert worker.process.exitcode == 0
    worker.socket.close()


def test_the_assembler_reads_what_the_worker_writes() -> None:
    """The same kinds of values, through one worker, as in test_values.py without a process."""
    sample = (torch.ones(2, dtype=torch.bfloat16), b"bytes", {"a": [1.5, True]}, np.float16(2))
    with Crew([sample] * 5) as crew:
        batch, _ = crew.batch([0, 1, 2, 3, 4])
    assert type(batch) is _values.ListBatch
    assert batch[0].dtype == torch.bfloat16
    assert batch[1] == (b"bytes",) * 5
    assert batch[2]["a"][1].dtype == torch.bool
    assert batch[3].dtype == torch.float16
