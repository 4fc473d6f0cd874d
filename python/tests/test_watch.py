"""The doctor's hook in unchanged scripts: what its lines say, and that the scripts do not notice it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from forms import long
from hooked import HOOK, Run, Scripts

import stoker
from stoker import _process

SAME = """
    import gc, inspect, pickle, random, sys, threading, traceback, warnings
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, get_worker_info

    class Numbers(Dataset):
        def __init__(self, n=24):
            self.n, self.opener = n, open

        def __len__(self):
            return self.n

        def __getitem__(self, i):
            frame, files = sys._getframe(), []
            while frame is not None:
                files.append(frame.f_code.co_filename)
                frame = frame.f_back
            assert not [name for name in files if "stoker_watch" in name]
            return i, torch.rand(2), random.random(), np.random.rand(), len(files)

    class Stream(IterableDataset):
        def __iter__(self):
            info = get_worker_info()
            first, step = (info.id, info.num_workers) if info else (0, 1)
            for i in range(first, 23, step):
                yield torch.tensor([i]) + torch.randint(0, 100, (1,))

    class Bad(Numbers):
        def __getitem__(self, i):
            return open("/no/such/file") if i == 3 else i

    class BadStream(IterableDataset):
        def __iter__(self):
            yield torch.zeros(1)
            raise ValueError("broken")

    class Derived(DataLoader):
        def __iter__(self):
            for batch in super().__iter__():
                yield batch

    class Ahead(DataLoader):
        def __iter__(self):
            inner = super().__iter__()
            now = next(inner)
            for then in inner:
                yield now
                now = then
            yield now

    def init(worker):
        random.seed(worker)
        torch.manual_seed(100 + worker)

    def texts(samples):
        return [repr(x) for x in samples]

    def show(loader, epochs=2):
        for _ in range(epochs):
            try:
                for batch in loader:
                    print(batch)
            except Exception:
                print(traceback.format_exc())
            gc.collect()

    if __name__ == "__main__":
        gc.collect(), gc.freeze()  # show() need not look at torch's modules, nor need workers copy them
        torch.manual_seed(1), random.seed(2), np.random.seed(3)
        for w in (0, 2):
            show(DataLoader(Numbers(), batch_size=10, shuffle=True, drop_last=True, persistent_workers=w > 0,
                            generator=torch.Generator().manual_seed(5), worker_init_fn=init, collate_fn=texts,
                            num_workers=w))
            show(DataLoader(Stream(), batch_size=4, num_workers=w, persistent_workers=w > 0))
        for w in (0, 1):  # one worker: with two, torch's own path to an error is a matter of chance
            show(DataLoader(Numbers(), batch_size=10, shuffle=True, num_workers=w))
            show(DataLoader(Bad(), batch_size=2, num_workers=w), 1)
        show(DataLoader(BadStream()), 1)
        show(DataLoader([1, 2, object()]), 1)
        show(DataLoader(Stream(), batch_size=None), 1)
        show(DataLoader(Subset(Numbers(), range(5, 15)), batch_size=3), 1)
        show(Derived(Numbers(), batch_size=3, shuffle=True))
        show(Ahead(Numbers(), batch_size=3, shuffle=True))
        loader = DataLoader(Numbers(), batch_size=3)
        for pair in zip(loader, DataLoader(Stream(), batch_size=3)):
            print(pair)
        following = iter(loader).__next__
        print(following(), following())
        print(len(pickle.dumps(loader)), inspect.signature(DataLoader), DataLoader.__iter__.__qualname__)
        try:
            DataLoader(Numbers(), batch_size=0)
        except ValueError:
            print(traceback.format_exc())
        print(torch.rand(1), random.random(), np.random.rand(), threading.active_count(), sys.path)
        print(sorted(x for x in sys.modules if "stoker" not in x and x != "sitecustomize"))
"""


def test_a_script_does_not_notice(scripts: Scripts) -> None:
    """Order, draws, seeds, tracebacks, stack depths, threads, modules: all that it prints is the same to the bit."""
    watched, plain = scripts.both(SAME)
    assert watched.out.splitlines() == plain.out.splitlines()
    assert (watched.code, watched.err) == (plain.code, plain.err) == (0, "")
    assert [x["trouble"] for x in watched.lines] == [[]] * len(watched.lines)
    assert len(watched.main()["loaders"]) == 16
    assert watched.main()["exit"] == "ok"


@long
def test_spawned_workers_get_what_they_are_sent(scripts: Scripts) -> None:
    """Functions that a dataset holds pickle by name: they must be what has the name, though a loader ran inline."""
    run = scripts.run("""
        import time, torch, numpy as np
        from PIL import Image
        from torch.utils.data import DataLoader, Dataset

        class Holder(Dataset):
            def __init__(self):
                self.functions = Image.open, time.sleep, np.load, open

            def __len__(self):
                return 10

            def __getitem__(self, i):
                return i

        if __name__ == "__main__":
            data = Holder()
            for inline in DataLoader(data):
                pass
            methods = "spawn", "forkserver"
            both = [DataLoader(data, 4, num_workers=1, multiprocessing_context=method) for method in methods]
            print([(x.tolist(), y.tolist()) for x, y in zip(*both)])
    """)
    assert run.code == 0, run.err
    assert run.out == f"{[(x, x) for x in ([0, 1, 2, 3], [4, 5, 6, 7], [8, 9])]}\n"
    inline, *others = run.main()["loaders"]
    assert inline["inline"]["samples"] == 10
    for loader, method in zip(others, ("spawn", "forkserver"), strict=True):
        assert loader["context"] == method
        (worker,) = run.workers(loader)
        assert (worker["batches"], worker["samples"], worker["index"]) == (3, 10, 0)
    assert {x["ppid"] for x in run.lines if x["role"] == "worker"} == {run.main()["pid"]}


# One script for several tests: torch takes longer to import than it does to run.
ALL = """
    import accelerate
    import numpy as np, pickle, socket, sys, time, torch, zipfile
    from PIL import Image
    from time import sleep
    from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, get_worker_info
    from torchvision import transforms as v1
    from torchvision.transforms import v2

    def compute():
        until = time.perf_counter() + 0.004
        while time.perf_counter() < until: pass
        return torch.zeros(3, 32, 32)
    class Computed(Dataset):
        def __len__(self): return 240
        def __getitem__(self, i): return compute() + i
    class Yielded(IterableDataset):
        def __iter__(self):
            for i in range(240): yield compute() + i
    for data in (Computed(), Yielded()):
        for _ in DataLoader(data, batch_size=16): time.sleep(0.005)

    class Slow(Dataset):
        def __len__(self):
            return 22

        def __getitem__(self, i):
            time.sleep(0.004)
            return torch.zeros(3, 5)

    class Inline(Slow): pass
    class Kept(Slow): pass
    class Rank(Slow): pass
    class Again(Slow): pass

    class Whole(Slow):
        def __getitems__(self, indices):
            time.sleep(0.02)
            return [torch.zeros(1) for _ in indices]

    class Stream(IterableDataset):
        def __iter__(self):
            for i in range(17 if get_worker_info().id else 3):
                yield i

    class Short(Stream): pass

    def pause(samples):
        time.sleep(0.01)
        return torch.stack(samples)

    for _ in DataLoader(Slow(), 4, num_workers=2):  # of two workers
        time.sleep(0.015)
    for _ in DataLoader(Inline(), 4, shuffle=True, collate_fn=pause): pass
    kept = DataLoader(Kept(), 5, num_workers=2, persistent_workers=True, prefetch_factor=3, drop_last=True)
    for _ in range(3):
        for _ in kept: pass
    for _ in range(3):
        for _ in DataLoader(Again(), 11): pass
    for _ in DataLoader(Whole(), 4): pass
    for _ in DataLoader(Rank(), 4, sampler=DistributedSampler(Rank(), num_replicas=2, rank=1)): break
    for _ in DataLoader(Stream(), 4, num_workers=2): pass
    for _ in DataLoader(Short(), 4, num_workers=2, drop_last=True): pass

    def burn(seconds):
        end = time.thread_time() + seconds
        while time.thread_time() < end: pass

    class Burn:
        def __call__(self, picture):
            burn(0.01)
            return picture

    class Nested(torch.nn.Module):
        def forward(self, picture):
            burn(0.002)
            sleep(0.005)
            return picture

    pixels = np.random.default_rng(1).integers(0, 255, (200, 300, 3), dtype=np.uint8)
    Image.fromarray(pixels).save("picture.jpg")
    np.save("array.npy", pixels)

    class First(Dataset):
        transform = None
        def __init__(self):
            self.transform = v1.Compose([v1.Resize(32), Burn(), Nested(), v1.ToTensor()])
        def __len__(self):
            return 24
        def __getitem__(self, i):
            np.load("array.npy")
            with open("picture.jpg", "rb") as file:
                return self.transform(Image.open(file).convert("RGB"))

    class Second(First):
        def __init__(self):
            self.transform = v2.Compose([v2.RandomCrop(50), v2.ToImage()])

    for _ in DataLoader(First(), 4): pass
    for _ in DataLoader(Second(), 4, num_workers=1): pass
    # After a batch all is torch's and Python's own again.
    assert type(sleep).__name__ == type(open).__name__ == "builtin_function_or_method"
    assert type(v1.Resize.__dict__["forward"]).__name__ == "function"

    class Plain(Dataset):
        def __init__(self):
            self.file = None
        def __len__(self):
            return 40
        def __getitem__(self, i):
            self.file = self.file or open("train.py")  # lazily, as one should: no state
            return torch.arange(12)

    class Counting(Plain):
        def __init__(self):
            self.seen, self.cache, self.fixed = 0, {}, 3
        def __getitem__(self, i):
            self.seen += 1
            self.cache[i] = 1
            return i

    class Holding(Plain):
        def __init__(self):
            self.file, self.closed = open("train.py"), open("train.py")
            self.closed.close()
            self.parts = [zipfile.ZipFile("some.zip", "w"), socket.socket()]

    class Large(Plain):
        def __init__(self):
            self.file, self.paths = None, [f"/data/pictures/{i:08}.jpg" for i in range(200_000)]

    class Forgot(Plain): pass
    class Called(Plain): pass

    class Tokens(Plain):
        def __getitem__(self, i):
            row = torch.zeros(20, dtype=torch.int64)
            row[:10] = torch.arange(1, 11)
            return row

    class Masked(Plain):
        def __getitem__(self, i):
            return {"input_ids": torch.arange(16), "attention_mask": (torch.arange(16) < 4).long()}

    def epochs(loader, n=2):
        for _ in range(n):
            for _ in loader: pass

    epochs(DataLoader(Plain(), 8, num_workers=1, shuffle=True))
    epochs(DataLoader(Counting(), 8, num_workers=2, persistent_workers=True))
    epochs(DataLoader(Holding(), 8, num_workers=1), 1)
    epochs(DataLoader(Large(), 8, num_workers=1), 1)
    sampler = DistributedSampler(range(40), 2, 0)
    epochs(DataLoader(Forgot(), 8, sampler=sampler))
    called = DataLoader(Called(), 8, sampler=DistributedSampler(range(40), 2, 0))
    for e in range(3):
        called.sampler.set_epoch(e)
        for _ in called: pass
    epochs(DataLoader(Tokens(), 8), 1)
    epochs(DataLoader(Masked(), 8), 1)

    class Given(list, Dataset): pass
    class Built(list, Dataset): pass
    class Twice(list, Dataset): pass
    built = DataLoader(Built(range(8)))
    loaders = [
        accelerate.prepare(Given(range(8))),
        accelerate.Shard(built),
        accelerate.Shard(accelerate.Shard(DataLoader(Twice(range(8)), batch_size=2))),
    ]
    del built
    for loader in loaders:
        for _ in loader: pass

    class Holder(Dataset):
        def __init__(self):
            self.functions = Image.open, time.sleep, np.load, open
        def __len__(self):
            return 10
        def __getitem__(self, i):
            return i

    data = Holder()
    for _ in DataLoader(data): pass
    assert pickle.loads(pickle.dumps(data)).functions == data.functions  # as if sent to spawned workers

    class Hung(list, Dataset): pass
    for i, _ in enumerate(DataLoader(Hung(range(12)))):
        if i == 3:
            sys.modules["stoker_watch_loader"].LONG = 0.0  # so that the test need not wait for seconds
"""

LIBRARY = """
    from torch.utils.data import DataLoader

    def prepare(dataset):
        return DataLoader(dataset, batch_size=5)

    class Shard(DataLoader):
        def __init__(self, inner):
            super().__init__(inner.dataset, batch_size=4)
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripts]:
    scripts = Scripts(tmp_path_factory.mktemp("watch"))
    yield scripts
    scripts.close()


@pytest.fixture(scope="module")
def run(shared: Scripts) -> Run:
    (shared.folder / "accelerate").mkdir()
    shared.write("accelerate/__init__.py", LIBRARY)
    run = shared.run(ALL, RANK="1", WORLD_SIZE="2", LOCAL_RANK="1", OMP_NUM_THREADS="1")
    assert run.code == 0, run.err
    return run


def line_of(scripts: Scripts, part: str) -> int:
    text = (scripts.folder / "train.py").read_text().splitlines()
    (number,) = [i + 1 for i, line in enumerate(text) if part in line]
    return number


def test_counts_and_times(shared: Scripts, run: Run) -> None:
    slow = run.loader("Slow")
    assert (slow["batches"], slow["workers"], slow["prefetch"], slow["length"]) == (6, 2, 2, 22)
    per_epoch = {name: run.loader(name)["per_epoch"] for name in ("Slow", "Rank", "Kept", "Stream")}
    assert per_epoch == {"Slow": 6, "Rank": 3, "Kept": 4, "Stream": None}  # a rank's own, whatever WORLD_SIZE says
    assert (slow["kind"], slow["sampler"], slow["shuffled"], slow["collate"]) == (
        "map",
        "SequentialSampler",
        False,
        "default",
    )
    assert slow["where"] == f"train.py:{line_of(shared, '# of two workers')}"
    assert slow["class"] == "torch.utils.data.dataloader.DataLoader"
    assert slow["shape"] == "[[2,3,5],float32]" or slow["shape"] == "[[4,3,5],float32]"
    assert slow["sample_bytes"] == 60
    assert slow["step"] >= 5 * 0.015
    assert 0 < slow["wait_first"] <= slow["wait"]
    assert 0 <= slow["ready"] <= 4
    (epoch,) = slow["epochs"]
    assert epoch["batches"] == 6
    assert epoch["begin"] + epoch["first"] < epoch["end"]
    assert [len(x) for x in slow["recent"]] == [3] * 6
    workers = run.workers(slow)
    assert [(x["index"], x["batches"], x["samples"]) for x in workers] == [(0, 3, 12), (1, 3, 10)]
    assert sorted(slow["pids"]) == sorted(x["pid"] for x in run.lines if x.get("worker") in workers)
    for worker in workers:
        assert worker["sample"] >= worker["samples"] * 0.0038  # a sleep of 4 ms, and what a clock rounds
        assert worker["sample_cpu"] < worker["sample"] / 2
        assert worker["fetch"] == pytest.approx(worker["sample"] + worker["collate"])
        assert 0.004 <= worker["sample_hist"]["p50"] * 1.07
        assert worker["sample_hist"]["p50"] <= worker["sample_hist"]["p99"] <= worker["sample_hist"]["max"]
        assert worker["calls"]["sleep"]["n"] == worker["samples"]
        assert worker["calls"]["sleep"]["s"] >= worker["samples"] * 0.004
        assert worker["calls"]["sleep"]["cpu"] < worker["calls"]["sleep"]["s"] / 2

    inline = run.loader("Inline")
    assert (inline["workers"], inline["shuffled"], inline["collate"], inline["ready"]) == (
        0,
        True,
        "__main__.pause",
        None,
    )
    assert (inline["inline"]["batches"], inline["inline"]["samples"]) == (6, 22)
    assert inline["inline"]["collate"] >= 6 * 0.01
    assert inline["inline"]["fetch"] <= inline["wait"]

    kept = run.loader("Kept")
    assert (kept["batches"], kept["passes"], kept["persistent"], kept["drop_last"]) == (12, 3, True, True)
    assert [x["batches"] for x in kept["epochs"]] == [4, 4, 4]
    assert sum(x["batches"] for x in run.workers(kept)) == 12
    assert len(run.workers(kept)) == 2

    again = run.loader("Again")  # built anew for every epoch
    assert (again["passes"], again["batches"], again["inline"]["samples"]) == (3, 6, 66)

    whole = run.loader("Whole")["inline"]
    assert (whole["samples"], whole["sample_hist"]["of"]) == (22, "batch")
    assert whole["sample_hist"]["p50"] * 1.07 >= 0.005

    assert [(x["batches"], x["samples"]) for x in run.workers(run.loader("Stream"))] == [(1, 3), (5, 17)]
    assert run.loader("Stream")["kind"] == "iterable"
    assert [(x["batches"], x["samples"]) for x in run.workers(run.loader("Short"))] == [(0, 0), (4, 16)]


def test_the_time_of_known_libraries(run: Run) -> None:
    first = run.loader("First")["inline"]
    calls = first["calls"]
    assert {"PIL", "PIL.convert", "open", "numpy.load", "sleep", "__main__.Burn", "__main__.Nested"} <= set(calls)
    assert {f"torchvision.transforms.{x}" for x in ("Resize", "ToTensor", "Compose")} <= set(calls)
    assert "PIL.resize" not in calls  # within Resize, which is charged
    for name in ("PIL.convert", "__main__.Burn", "torchvision.transforms.Resize", "numpy.load", "sleep"):
        assert calls[name]["n"] == 24, name
    assert calls["__main__.Burn"]["cpu"] >= 24 * 0.0099
    assert calls["__main__.Nested"]["cpu"] >= 24 * 0.0019
    assert calls["sleep"]["s"] >= 24 * 0.005
    assert calls["sleep"]["cpu"] < 24 * 0.0025
    # Self times: nothing is counted twice, on the clock of the CPU, which other processes do not disturb.
    assert calls["torchvision.transforms.Compose"]["cpu"] < calls["__main__.Burn"]["cpu"] / 4
    assert 0 < first["timed_samples"] <= 24
    names = ["torchvision.transforms.Resize", "__main__.Burn", "__main__.Nested", "torchvision.transforms.ToTensor"]
    assert run.loader("First")["transforms"] == names
    second = run.workers(run.loader("Second"))[0]["calls"]
    assert {"PIL", "open", "torchvision.transforms.v2.RandomCrop", "torchvision.transforms.v2.ToImage"} <= set(second)


def test_facts(run: Run) -> None:
    main = run.main()
    assert (main["rank"], main["world"], main["local_rank"], main["threads"]["OMP_NUM_THREADS"]) == (1, 2, 1, "1")
    assert main["threads"]["torch"] == 1
    assert main["cuda_before_fork"] is False
    assert "torch" in main["libraries"]
    assert run.workers(run.loader("Plain"))[0]["threads"]["torch"] == 1

    plain = run.loader("Plain")
    assert [x["stateful"] for x in run.workers(plain)] == [[], []]
    assert (plain["handles"], plain["order_repeated"], plain["set_epoch"]) == ([], False, None)
    assert plain["dataset_bytes"] < 1000
    assert (plain["pinned"], plain["non_blocking"]) == (None, {"true": 0, "false": 0})

    assert [sorted(x["stateful"]) for x in run.workers(run.loader("Counting"))] == [["cache", "seen"]] * 2
    assert run.loader("Counting")["order_repeated"] is True
    assert run.loader("Counting")["shuffled"] is False
    assert sorted(run.loader("Holding")["handles"]) == ["file", "socket.socket", "zipfile.ZipFile"]
    assert run.loader("Large")["dataset_bytes"] == pytest.approx(200_000 * 31, rel=0.1)

    assert (run.loader("Forgot")["set_epoch"], run.loader("Forgot")["order_repeated"]) == (False, True)
    assert (run.loader("Called")["set_epoch"], run.loader("Called")["order_repeated"]) == (True, False)
    assert run.loader("Called")["shuffled"] is True

    assert run.loader("Tokens")["padding"] == pytest.approx(0.5)
    assert run.loader("Masked")["padding"] == pytest.approx(0.75)
    assert plain["padding"] == 0


def test_the_line_is_the_scripts_own(shared: Scripts, run: Run) -> None:
    """A library that builds loaders for a script is passed over, wherever it is installed, and the line is that of the
    loader that it had them from."""
    for name, part in (("Given", "prepare(Given"), ("Built", "DataLoader(Built"), ("Twice", "DataLoader(Twice")):
        assert run.loader(name)["where"] == f"train.py:{line_of(shared, part)}"


def test_a_step_that_hangs_is_remembered(run: Run) -> None:
    loader = run.loader("Hung")
    assert len(loader["long_steps"]) == 8
    lengths = [seconds for seconds, _ in loader["long_steps"]]
    assert lengths == sorted(lengths)  # rounded ones may be equal
    assert sum(took for took, _ in loader["long_steps"]) <= loader["step"]


def test_loaders_of_stoker_have_a_line(scripts: Scripts, tmp_path: Path) -> None:
    np.save(tmp_path / "numbers.npy", np.arange(64, dtype=np.int64))
    source = Path(stoker.__file__).resolve().parents[1]
    text = """
        import stoker
        def made():
            return stoker.DataLoader(stoker.NpyDataset("numbers.npy"), batch_size=8, output="numpy")
        first, second = made(), stoker.DataLoader(stoker.NpyDataset("numbers.npy"), batch_size=4, output="numpy")
        print(sum(len(batch.ids) for batch in first), sum(len(batch.ids) for batch in second))
        first.close()
    """
    run = scripts.run(text, PYTHONPATH=os.pathsep.join([str(HOOK), str(source)]), STOKER_ENGINE=str(_process.find()))
    assert (run.code, run.out) == (0, "64 64\n"), run.err
    told = run.main()["stoker"]
    assert [x["where"] for x in told] == ["train.py:4", "train.py:5"]
    assert len({x["loader"] for x in told}) == 2
    plain = scripts.end(scripts.start(text, watch=False, PYTHONPATH=str(source), STOKER_ENGINE=str(_process.find())))
    assert plain.out == "64 64\n", plain.err


def test_where_short_computations_stand(run: Run) -> None:
    """Samples that compute for less than the interpreter's switch interval, and then give its lock away for a moment,
    are not taken for the collating that follows them, where it is free for longer; nor is the loop, which asks for
    the next."""
    for name in ("Computed", "Yielded"):
        inline = run.loader(name)["inline"]
        shares = dict(inline["stacks"])
        assert inline["looks"] > 0
        collating = [share for place, share in shares.items() if "collate" in place]
        assert sum(collating) <= inline["collate"] / inline["fetch"] + 0.001
        assert not [place for place in shares if place.startswith("train.py:<module>")]
        assert sum(shares.values()) == pytest.approx(1, abs=0.01)
