"""The doctor's hook in unchanged scripts: what its lines say, and that the scripts do not notice it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import _process

HOOK = Path(__file__).resolve().parents[2] / "internal" / "tool" / "doctor" / "hook"
LONG = 120  # s in which a script ends on any machine

Line = dict[str, Any]


@dataclass
class Run:
    """A script under the hook: what it printed, and the last line of each of its processes."""

    code: int
    out: str
    err: str
    lines: list[Line] = field(default_factory=list)

    def main(self) -> Line:
        (line,) = [x for x in self.lines if x["role"] == "main"]
        return line

    def loader(self, name: str) -> Line:
        """The loader whose dataset is of the class NAME."""
        found = [x for line in self.lines for x in line["loaders"] if x["dataset"].endswith("." + name)]
        assert len(found) == 1, f"{len(found)} loaders of {name}"
        return dict(found[0])

    def workers(self, loader: Line) -> list[Line]:
        found = [x["worker"] for x in self.lines if x["role"] == "worker" and x["worker"]["loader"] == loader["id"]]
        return sorted(found, key=lambda x: (x["index"], x["started"]))


def read(out: Path) -> list[Line]:
    """The last whole line of each file; all lines before it must be whole, too."""
    last = []
    for file in out.glob("*.jsonl"):
        whole, _, _ = file.read_text().rpartition("\n")
        lines = [json.loads(x) for x in whole.splitlines()]
        assert all(x["v"] == 1 and x["pid"] == int(file.stem) for x in lines)
        assert [x["t"] for x in lines] == sorted(x["t"] for x in lines)
        last += lines[-1:]
    return last


class Scripts:
    """Writes scripts into a folder of their own and runs them, with the hook or without."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        self.processes: list[subprocess.Popen[str]] = []

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(textwrap.dedent(text))
        return path

    def start(self, text: str, watch: bool = True, **env: str) -> subprocess.Popen[str]:
        self.count += 1
        path = self.write("train.py", text)
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("STOKER_DOCTOR", "PYTHON"))}
        environ["CUDA_VISIBLE_DEVICES"] = ""
        environ["PYTHONWARNINGS"] = "ignore:Sharing of workers"
        if watch:
            self.out = self.folder / f"out{self.count}"
            self.out.mkdir()
            environ |= {"PYTHONPATH": str(HOOK), "STOKER_DOCTOR_DIR": str(self.out)}
        environ["PYTHONDONTWRITEBYTECODE"] = "1"
        process = subprocess.Popen(
            [sys.executable, str(path)],
            env=environ | env,
            cwd=self.folder,
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def end(self, process: subprocess.Popen[str], out: Path | None = None) -> Run:
        text, err = process.communicate(timeout=LONG)
        return Run(process.returncode, text, err, read(out) if out is not None and out.is_dir() else [])

    def run(self, text: str, **env: str) -> Run:
        """Runs under the hook; the hook itself must have made no mistake."""
        process = self.start(text, True, **env)
        run = self.end(process, self.out)
        assert [x["trouble"] for x in run.lines] == [[]] * len(run.lines)
        return run

    def both(self, text: str) -> tuple[Run, Run]:
        """With the hook and without it, at the same time."""
        watched = self.start(text)
        out = self.out
        plain = self.start(text, watch=False)
        return self.end(watched, out), self.end(plain)


@pytest.fixture
def scripts(tmp_path: Path) -> Iterator[Scripts]:
    scripts = Scripts(tmp_path)
    yield scripts
    for process in scripts.processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


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
            assert not [name for name in files if "stoker" in name]
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


def test_counts_and_times(scripts: Scripts) -> None:
    run = scripts.run("""
        import time, torch
        from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

        class Slow(Dataset):
            def __len__(self):
                return 22

            def __getitem__(self, i):
                time.sleep(0.004)
                return torch.zeros(3, 5)

        class Inline(Slow): pass
        class Kept(Slow): pass
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

        for _ in DataLoader(Slow(), 4, num_workers=2):  # train.py:31
            time.sleep(0.015)
        for _ in DataLoader(Inline(), 4, shuffle=True, collate_fn=pause): pass
        kept = DataLoader(Kept(), 5, num_workers=2, persistent_workers=True, prefetch_factor=3, drop_last=True)
        for _ in range(3):
            for _ in kept: pass
        for _ in range(3):
            for _ in DataLoader(Again(), 11): pass
        for _ in DataLoader(Whole(), 4): pass
        for _ in DataLoader(Stream(), 4, num_workers=2): pass
        for _ in DataLoader(Short(), 4, num_workers=2, drop_last=True): pass
    """)
    assert run.code == 0, run.err
    slow = run.loader("Slow")
    assert (slow["batches"], slow["workers"], slow["prefetch"], slow["length"]) == (6, 2, 2, 22)
    assert (slow["kind"], slow["sampler"], slow["shuffled"], slow["collate"]) == (
        "map",
        "SequentialSampler",
        False,
        "default",
    )
    assert slow["where"] == "train.py:33"
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
        assert worker["sample"] >= worker["samples"] * 0.004
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


def test_the_time_of_known_libraries(scripts: Scripts) -> None:
    run = scripts.run("""
        import numpy as np, time, torch
        from PIL import Image
        from time import sleep
        from torch.utils.data import DataLoader, Dataset
        from torchvision import transforms as v1
        from torchvision.transforms import v2

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
    """)
    assert run.code == 0, run.err
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


def test_facts(scripts: Scripts) -> None:
    run = scripts.run(
        """
        import socket, torch, zipfile
        from torch.utils.data import DataLoader, Dataset, IterableDataset, DistributedSampler

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
    """,
        RANK="1",
        WORLD_SIZE="2",
        LOCAL_RANK="1",
        OMP_NUM_THREADS="1",
    )
    assert run.code == 0, run.err
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


def test_the_line_is_the_scripts_own(scripts: Scripts) -> None:
    """A library that builds loaders for a script is passed over, wherever it lies, and the line is that of the loader
    that it had them from."""
    library = scripts.folder / "accelerate"
    library.mkdir()
    (library / "__init__.py").write_text(
        "from torch.utils.data import DataLoader\n"
        "def prepare(dataset):\n    return DataLoader(dataset, batch_size=5)\n"
        "class Shard(DataLoader):\n"
        "    def __init__(self, inner):\n        super().__init__(inner.dataset, batch_size=4)\n"
    )
    run = scripts.run("""
        import accelerate
        from torch.utils.data import DataLoader, Dataset
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
    """)
    assert run.code == 0, run.err
    text = (scripts.folder / "train.py").read_text().splitlines()
    for name, part in (("Given", "prepare(Given"), ("Built", "DataLoader(Built"), ("Twice", "DataLoader(Twice")):
        (number,) = [i + 1 for i, line in enumerate(text) if part in line]
        assert run.loader(name)["where"] == f"train.py:{number}"


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


def test_a_step_that_hangs_is_remembered(scripts: Scripts) -> None:
    run = scripts.run("""
        import sys
        from torch.utils.data import DataLoader, Dataset
        class Hung(list, Dataset): pass
        for i, _ in enumerate(DataLoader(Hung(range(12)))):
            if i == 3:
                sys.modules["stoker_watch_loader"].LONG = 0.0  # so that the test need not wait for seconds
    """)
    assert run.code == 0, run.err
    loader = run.loader("Hung")
    assert len(loader["long_steps"]) == 8
    assert loader["long_steps"] == sorted(loader["long_steps"])
    assert sum(took for took, _ in loader["long_steps"]) <= loader["step"]


def test_scripts_without_torch_and_their_children(scripts: Scripts) -> None:
    run = scripts.run("""
        import os, subprocess, sys
        if os.fork() == 0:
            sys.exit(0)
        os.wait()
        subprocess.run([sys.executable, "-c", "raise KeyError(1)"], stderr=subprocess.DEVNULL)
        subprocess.run([sys.executable, "-I", "-c", "pass"])
        if os.fork() == 0:
            os._exit(0)
        os.wait()
        raise SystemExit(7)
    """)
    assert (run.code, run.out, run.err) == (7, "", "")
    assert run.main()["loaders"] == []
    assert run.main()["exit"] == "ok"
    assert run.main()["argv"][0].endswith("train.py")
    children = [x for x in run.lines if x["role"] == "child"]
    assert sorted(x["exit"] for x in children) == ["exception KeyError", "ok"]
    assert all(x["ppid"] == run.main()["pid"] for x in children)


def test_nothing_happens_without_a_folder(scripts: Scripts, tmp_path: Path) -> None:
    text = "import sys; print([x for x in sys.modules if 'stoker' in x], sys.path)"
    plain = scripts.end(scripts.start(text, watch=False))
    (tmp_path / "file").touch()
    shut = tmp_path / "shut"
    shut.mkdir(mode=0o500)
    for folder in ("", str(tmp_path / "missing"), str(tmp_path / "file"), *([str(shut)] if os.geteuid() else [])):
        run = scripts.end(scripts.start(text, STOKER_DOCTOR_DIR=folder))
        assert (run.code, run.out, run.err) == (0, plain.out, ""), folder
    assert list(shut.iterdir()) == []


def test_another_sitecustomize_runs(scripts: Scripts, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys; sys.mine = __file__\n")
    path = os.pathsep.join([str(HOOK), str(own)])
    text = "import sys, sitecustomize; print(sys.mine == sitecustomize.__file__, sitecustomize.__file__, sys.path[1])"
    run = scripts.run(text, PYTHONPATH=path)
    assert (run.out, run.err) == (f"True {own}/sitecustomize.py {own}\n", "")
    assert run.main()["exit"] == "ok"

    (own / "sitecustomize.py").write_text("raise ValueError('mine')\n")
    broken = scripts.run("print(1)", PYTHONPATH=path)
    alone = scripts.end(scripts.start("print(1)", watch=False, PYTHONPATH=str(own)))
    assert (broken.out, broken.err) == (alone.out, alone.err)
    assert "ValueError: mine" in alone.err


def test_a_module_of_the_scripts_own_is_not_shadowed(scripts: Scripts) -> None:
    for name in ("json", "threading", "functools", "weakref", "types", "random"):
        scripts.write(f"{name}.py", "own = True\n")
    plain, watched = (
        scripts.end(scripts.start("import json, random; print(json.own, random.own)", watch=watch))
        for watch in (False, True)
    )
    assert (watched.out, watched.err, watched.code) == (plain.out, plain.err, plain.code) == ("True True\n", "", 0)


ENDS = """
    import os, signal, sys, time, torch
    from torch.utils.data import DataLoader, Dataset

    class Numbers(Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, i):
            if i == 8 and how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if i == 8 and how == "stuck":
                time.sleep(1000)
            return i

    def train():
        for i, batch in enumerate(DataLoader(Numbers(), 4, num_workers=how in ("killed", "stuck"))):
            if i == 1 and how == "crash":
                time.sleep(0.8)
                os.kill(os.getpid(), signal.SIGKILL)
            if i == 1 and how == "leave":
                os._exit(3)
            if i == 1 and how == "exit":
                sys.exit(5)
            if i == 1 and how == "error":
                raise LookupError("mine")

    children = {}
    for how in ("killed", "crash", "leave", "exit", "stuck"):
        child = os.fork()
        if child == 0:
            if how == "killed":
                sys.stderr = open(os.devnull, "w")
            train()
        children[how] = child
    for how, child in children.items():
        if how == "stuck":
            print("ready", flush=True)
            sys.stdin.readline()
            os.kill(child, signal.SIGKILL)
        print(how, child, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    how = "error"
    train()
"""


def test_however_a_script_ends(scripts: Scripts) -> None:
    """Status and words are the script's own, and each last line is true of what had happened when it was written."""
    process = scripts.start(ENDS)
    out = scripts.out
    assert process.stdout is not None
    ended = {}
    for line in iter(process.stdout.readline, "ready\n"):
        how, child, status = line.split()
        ended[how] = (int(child), int(status))

    # The child that hangs is told of while it does.
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        stuck = [x for x in read(out) if x["role"] == "worker" and (x["worker"]["fetching"] or x["t"]) < x["t"] - 1]
        waits = [x for x in read(out) if x["loaders"] and stuck and x["pid"] == stuck[0]["ppid"]]
        if waits and stuck[0]["worker"]["looks"] > 3 and waits[0]["t"] - waits[0]["loaders"][0]["doing"][1] > 1:
            break
        time.sleep(0.1)
    assert waits[0]["loaders"][0]["doing"][0] == "wait"
    assert waits[0]["loaders"][0]["batches"] == 2
    assert stuck[0]["worker"]["batches"] == 2
    assert stuck[0]["worker"]["stacks"][0][0].startswith("train.py:__getitem__:")
    assert stuck[0]["worker"]["waits"]["sleep"] > 0.5
    assert process.stdin is not None
    os.kill(stuck[0]["pid"], signal.SIGKILL)
    process.stdin.write("\n")
    run = scripts.end(process, out)

    assert [x["trouble"] for x in run.lines] == [[]] * len(run.lines)
    by_pid = {x["pid"]: x for x in run.lines}
    said = {how: by_pid[child] for how, (child, _) in ended.items()}
    assert {how: status for how, (_, status) in ended.items()} == {"killed": 1, "crash": -9, "leave": 3, "exit": 5}
    assert said["killed"]["loaders"][0]["batches"] in (1, 2)  # torch may hear of the death before the second comes
    assert [said[how]["loaders"][0]["batches"] for how in ("crash", "leave", "exit")] == [2, 2, 2]
    assert said["killed"]["exit"].startswith("exception ")
    assert [said[how]["exit"] for how in ("crash", "leave", "exit")] == [None, "ok", "ok"]
    assert {x["role"] for x in said.values()} == {"child"}
    assert run.code == 1
    assert run.main()["exit"] == "exception LookupError"
    assert run.main()["loaders"][0]["batches"] == 2
    assert run.err.splitlines()[-1] == "LookupError: mine"
    assert "stoker" not in run.err
