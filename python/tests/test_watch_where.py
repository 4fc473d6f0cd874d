"""What the doctor's hook says of where: lines, files, samples and steps of unchanged scripts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hooked import Run, Scripts

# One script for most tests: torch takes longer to import than it does to run.
HEAD = """
    import json, sqlite3, sys, time, zipfile
    import torch
    from torch.utils.data import DataLoader, Dataset

    def burn(seconds):
        end = time.thread_time() + seconds
        while time.thread_time() < end: pass
"""
MANY = (
    HEAD
    + """
    json.dump(list(range(64)), open("all.json", "w"))
    for i in range(64): json.dump(i, open(f"{i}.json", "w"))

    class Same(Dataset):
        def __len__(self): return 64
        def __getitem__(self, i):
            with open("all.json") as file: # the same
                return json.load(file)[i] # parsed

    class Each(Dataset):
        def __len__(self): return 64
        def __getitem__(self, i):
            with open(f"{i}.json") as file:
                return json.load(file)

    class Connects(Dataset):
        def __len__(self): return 64
        def __getitem__(self, i):
            sqlite3.connect("some.db").close()
            return i

    class Held(Connects):
        def __getitem__(self, i):
            if not hasattr(self, "db"): self.db = sqlite3.connect("some.db")
            return self.db.execute("SELECT ?", (i,)).fetchone()[0]

    for data in (Same(), Each(), Connects(), Held()):
        for _ in DataLoader(data, batch_size=4, shuffle=True): time.sleep(0.03)

    class Tail(Dataset):
        def __init__(self): self.paths = [f"picture{i}.jpg" for i in range(160)]
        def __len__(self): return 160
        def __getitem__(self, i):
            burn(0.2 if i % 40 == 33 else 0.001)
            return i

    for _ in DataLoader(Tail(), batch_size=8): pass

    class Burning(torch.utils.data.Sampler):
        def __len__(self): return 640
        def __iter__(self):
            for i in range(640): # 2.6 s: the hook looks four times a second
                burn(0.004) # an index
                yield i

    class Sampled(list, Dataset): pass
    class Quick(list, Dataset): pass
    for _ in DataLoader(Sampled(range(640)), batch_size=4, sampler=Burning(), num_workers=1): pass
    for _ in DataLoader(Quick(range(1200)), batch_size=4, num_workers=1): pass

    class Anew(list, Dataset): pass
    class Kept(list, Dataset): pass
    for _ in range(3):
        for _ in DataLoader(Anew(range(8)), batch_size=4): pass
    kept = DataLoader(Kept(range(8)), batch_size=4)
    for _ in range(3):
        for _ in kept: pass

    class Handed(list, Dataset): pass
    class Own(list, Dataset): pass
    class Passing(DataLoader):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
    class Setting(DataLoader):
        def __init__(self, data):
            super().__init__(data, batch_size=4)
    def make(data, **options):
        return Passing(data, **options)
    for loader in (make(Handed(range(8)), batch_size=2), Setting(Own(range(8)))):
        for _ in loader: pass
    """
)

# And another script, in which only one loop has slow steps: the hook does not tell those of two loops apart.
FEW = (
    HEAD
    + """
    class Some(Dataset):
        def __len__(self): return 1000
        def __getitem__(self, i): return i
    def save():
        time.sleep(0.6) # saves
    for k, _ in enumerate(DataLoader(Some(), batch_size=4), 1):
        time.sleep(0.01)
        if k % 40 == 0: save()
        if k == 170: break

    WORDS = {i: i % 97 for i in range(5000)}
    def numbers(i):
        out = []
        for k in range(1000):
            out.append(WORDS[(k * i) % 5000]) # here
        return out
    class Loop(Dataset):
        def __len__(self): return 4000
        def __getitem__(self, i):
            return torch.tensor(numbers(i))
    before = sys.gettrace()
    for k, _ in enumerate(DataLoader(Loop(), batch_size=8, num_workers=1)):
        if k == 300: break
    assert sys.gettrace() is before

    class Debugged(Loop): pass
    before = lambda *_: None
    sys.settrace(before)
    for k, _ in enumerate(DataLoader(Debugged(), batch_size=8)):
        if k == 20: break  # its own tracing is slow
    assert sys.gettrace() is before
    """
)


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripts]:
    scripts = Scripts(tmp_path_factory.mktemp("where"))
    yield scripts
    scripts.close()


@pytest.fixture(scope="module")
def run(scripts: Scripts) -> Run:
    run = scripts.run(MANY)
    assert run.code == 0, run.err
    return run


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripts]:
    scripts = Scripts(tmp_path_factory.mktemp("others"))
    yield scripts
    scripts.close()


@pytest.fixture(scope="module")
def few(others: Scripts) -> Run:
    run = others.run(FEW)
    assert run.code == 0, run.err
    return run


def line_of(scripts: Scripts, part: str) -> int:
    text = (scripts.folder / "train.py").read_text().splitlines()
    (number,) = [i + 1 for i, line in enumerate(text) if part in line]
    return number


def test_what_is_opened_again_for_every_sample(scripts: Scripts, run: Run) -> None:
    """One file for all samples is opened again; a file for each sample is not."""
    same = run.loader("Same")["inline"]
    assert same["targets"]["open"]["again"] > 0.5  # most; the first ones open something new
    assert same["targets"]["open"]["targets"] == 1
    assert same["files"] == [str(scripts.folder / "all.json")]
    assert same["calls"]["open"]["at"] == f"train.py:__getitem__:{line_of(scripts, '# the same')}"
    assert same["calls"]["json.load"]["at"] == f"train.py:__getitem__:{line_of(scripts, '# parsed')}"
    each = run.loader("Each")["inline"]["targets"]["open"]
    assert each["again"] == 0
    assert each["targets"] >= 4
    assert run.loader("Connects")["inline"]["targets"]["sqlite3.connect"]["again"] > 0.5
    held = run.loader("Held")["inline"]
    assert "sqlite3.connect" not in held["targets"]
    assert held["files"] == [str(scripts.folder / "some.db")]
    assert "sqlite" in held["stores"]


def test_the_slow_samples_have_their_numbers_and_names(scripts: Scripts, run: Run) -> None:
    tail = run.loader("Tail")["inline"]
    assert {(n, name) for _, n, name in tail["slowest"][:4]} == {(n, f"picture{n}.jpg") for n in (33, 73, 113, 153)}
    assert tail["tail"]["n"] >= 4
    assert tail["tail"]["s"] > 0.4 * tail["tail"]["all_s"]


def test_the_line_of_a_short_computation_is_its_own(others: Scripts, few: Run) -> None:
    """A loop in Python gives the interpreter's lock away only where it calls torch: looks see that line, traced
    samples the loop. A script under a debugger is not traced."""
    (worker,) = few.workers(few.loader("Loop"))
    shares = dict(worker["stacks"])
    here = line_of(others, "# here")
    assert sum(shares.get(f"train.py:numbers:{n}", 0) for n in (here - 1, here)) > 0.6


def test_steps_that_take_longer_have_their_line(others: Scripts, few: Run) -> None:
    steps = few.loader("Some")["steps"]
    assert steps["numbers"] == [40, 80, 120, 160]
    assert steps["long"][0][0].startswith(f"train.py:save:{line_of(others, '# saves')}")
    assert steps["tail"]["n"] == 4
    assert steps["tail"]["s"] > steps["tail"]["all_s"] / 2


def test_the_line_that_sets_a_value(scripts: Scripts, run: Run) -> None:
    """Constructors of a derived class that pass on **options are passed over; the calls that led there are all told."""
    handed = run.loader("Handed")
    assert handed["where"] == f"train.py:{line_of(scripts, 'return Passing')}"
    path = str(scripts.folder / "train.py")
    assert [path, line_of(scripts, "make(Handed"), "<module>"] in handed["lines"]
    assert run.loader("Own")["where"] == f"train.py:{line_of(scripts, 'super().__init__(data, batch')}"


def test_a_sampler_that_the_trainer_runs(scripts: Scripts, run: Run) -> None:
    """With workers the sampler's own code runs inside __next__: it is told with its line and its share."""
    slow, quick = run.loader("Sampled"), run.loader("Quick")
    places = dict(slow["steps"]["inside"])
    assert sum(places.values()) > 0.1, slow  # 0.9 where the worker has a core at once
    assert max(places, key=lambda at: places[at]).startswith("train.py:burn:"), places
    assert quick["steps"]["inside"] == []


def test_loaders_that_are_made_anew_are_counted(scripts: Scripts, run: Run) -> None:
    anew, kept = run.loader("Anew"), run.loader("Kept")
    assert (anew["made"], anew["passes"]) == (3, 3)
    assert (kept["made"], kept["passes"]) == (1, 3)
