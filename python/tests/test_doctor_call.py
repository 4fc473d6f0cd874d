"""stoker.doctor over real loaders: verdict, report, what is as it was before, errors."""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forms
import numpy as np
import pytest
from conftest import make_folder, picture
from hooked import crowded
from needs import needs

import stoker
from stoker import _process
from stoker import transforms as T

torch = needs("torch")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("doctor") / "train", 24)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures whose decoding costs much more than all else."""
    root = tmp_path_factory.mktemp("doctor") / "large"
    (root / "one").mkdir(parents=True)
    for i in range(24):
        picture(i, (1500, 1200)).save(root / "one" / f"{i:02d}.jpg", quality=95)
    return root


def chain() -> T.Compose:
    return T.Compose([T.RandomResizedCrop(32), T.ToTensor()])


def long(folder: Path) -> stoker.DataLoader:
    """A loader whose epochs outlast a look at it: how they start does not matter."""
    data = stoker.ImageFolder(folder, transform=chain())
    return stoker.DataLoader(data, batch_size=4, replacement=True, num_samples=100_000)


class Numbers:
    """Samples that cost so many seconds of waiting, or of computing."""

    def __init__(self, wait: float = 0.0, work: float = 0.0, length: int = 100_000) -> None:
        self.wait, self.work, self.length = wait, work, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> Any:
        if self.wait:
            time.sleep(self.wait)
        end = time.thread_time() + self.work
        while time.thread_time() < end:
            pass
        return torch.full((4,), i), i


def watched() -> list[str]:
    """Methods of torch's loader that are not torch's own."""
    module = torch.utils.data.dataloader
    kinds = [module.DataLoader, module._BaseDataLoaderIter, module._MultiProcessingDataLoaderIter]
    kinds.append(module._utils.fetch._MapDatasetFetcher)
    return [f"{kind.__name__}.{k}" for kind in kinds for k, v in vars(kind).items() if type(v).__name__ == "Door"]


def children() -> set[int]:
    """Processes that this one started and that still are, engines apart."""
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = Path(f"/proc/{name}/stat").read_text()
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == os.getpid() and "(stoker" not in stat:
                found.add(int(name))
    return found


def test_a_slow_step_is_not_bound_by_data(photos: Path) -> None:
    loader = long(photos)
    seen: list[Any] = []

    def step(batch: Any) -> None:
        seen.append(batch[0].shape)
        time.sleep(0.1)

    found = stoker.doctor(loader, step, seconds=4)
    loader.close()
    assert found.verdict == "not data-bound"
    assert not found.data_bound
    assert found.change is None
    assert found.speedup is None
    assert set(seen) == {(4, 3, 32, 32)}
    loop = found.evidence["loops"][0]
    assert loop["settings"]["class"] == "stoker.DataLoader"
    assert loop["step_s"]["value"] >= 0.1
    assert loop["step_s"]["source"] == "statistics page"
    rates = [tier["samples_per_second"]["value"] for tier in found.evidence["tiers"]]
    assert max(rates) <= 41  # 4 in a tenth of a second, with either
    text = str(found)
    assert text.startswith("stoker doctor: stoker.DataLoader over ImageFolder, called at test_doctor")
    assert max(map(len, text.splitlines())) <= 80
    assert "possible gain, with steps of 10" in text


@pytest.fixture
def two_cores() -> Iterator[None]:
    """With more of them, more lanes are the better advice."""
    all_of_them = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(all_of_them)[:2])
    yield
    os.sched_setaffinity(0, all_of_them)


@pytest.mark.usefixtures("two_cores")
def test_a_quick_step_over_large_pictures_waits_for_their_decoding(large: Path) -> None:
    loader = long(large)
    found = stoker.doctor(loader, 0.0005, seconds=3)
    loader.close()
    if not crowded(found.evidence):  # else the step itself may have waited for a core
        assert found.data_bound
        assert found.verdict == "decode"
        assert found.change is not None
        assert "pack" in found.change or "packed" in str(found)
        assert found.speedup is not None
        assert found.speedup > 1.3
    stages = {stage["name"]: stage["wall_s"]["value"] for stage in found.evidence["loops"][0]["cost"]["stages"]}
    assert max(stages, key=lambda name: stages[name]) == "decode"


def test_without_a_step_it_says_how_much_there_is_to_gain(photos: Path) -> None:
    loader = stoker.DataLoader(stoker.ImageFolder(photos, transform=chain()), batch_size=4)
    found = stoker.doctor(loader, seconds=3)
    loader.close()
    names = [tier["name"] for tier in found.evidence["tiers"]]
    assert names == ["batches out of nothing", "the dataset"]
    rates = [tier["samples_per_second"]["value"] for tier in found.evidence["tiers"]]
    assert rates[0] > rates[1]
    said = " ".join(str(found).split())
    assert "Without a step there is no loop to speed up: this loader keeps up with steps of" in said


def test_the_report_is_evidence_again(photos: Path, tmp_path: Path) -> None:
    loader = stoker.DataLoader(stoker.ImageFolder(photos), batch_size=4)
    found = stoker.doctor(loader, 0.02, seconds=2)
    loader.close()
    (tmp_path / "report.json").write_text(found.json())
    again = subprocess.run(
        [_process.find(), "doctor", "--from", str(tmp_path / "report.json")], capture_output=True, text=True, check=True
    )
    assert again.stdout.strip() == str(found).strip()
    assert json.loads(found.json())["evidence"] == found.evidence
    assert found.evidence["subject"]["kind"] == "loader"
    assert repr(found) == f"Diagnosis({found.verdict!r})"


@forms.thinned
@pytest.mark.parametrize("at", ["new", "middle", "end"])
@pytest.mark.parametrize("sampler", [False, True])
def test_stokers_loader_stands_where_it_stood(photos: Path, at: str, sampler: bool) -> None:
    def make() -> stoker.DataLoader:
        data = stoker.ImageFolder(photos)
        order: dict[str, Any] = {"shuffle": True}
        if sampler:
            order = {"sampler": stoker.RandomSampler(data, seed=3)}
        return stoker.DataLoader(data, batch_size=4, **order)

    def begin(loader: stoker.DataLoader) -> None:
        if at != "new":
            passage = iter(loader)
            for _ in range(3 if at == "middle" else len(loader)):
                next(passage)
            if at == "end":
                assert next(passage, None) is None

    def rest(loader: stoker.DataLoader) -> list[list[int]]:
        return [[int(i) for i in batch.ids] for _ in range(2) for batch in loader]

    plain, looked = make(), make()
    for loader in (plain, looked):
        begin(loader)
    stoker.doctor(looked, seconds=0.3)
    assert looked.state_dict() == plain.state_dict()
    assert looked.receipt() == plain.receipt()
    assert rest(looked) == rest(plain)
    for loader in (plain, looked):
        loader.close()


def test_torchs_loader_waits_for_python_code() -> None:
    loader = torch.utils.data.DataLoader(Numbers(work=0.004), batch_size=4)
    found = stoker.doctor(loader, 0.0005, seconds=4)
    assert found.data_bound
    loop = found.evidence["loops"][0]
    assert loop["settings"]["where"].startswith("test_doctor_call.py:")
    assert loop["cost"]["sample_s"]["value"] >= 0.004
    assert loop["cost"]["sample_s"]["source"] == "hook"
    # One worker beside the trainer, or none that helps, by the cores that are free just now.
    assert found.verdict in {"too few workers", "Python code"}
    assert found.speedup is not None
    assert "no workers" in [finding["name"] for finding in found.findings]


def test_torchs_workers_are_watched() -> None:
    loader = torch.utils.data.DataLoader(
        Numbers(wait=0.006), batch_size=4, num_workers=1, persistent_workers=True, shuffle=True
    )
    before = children()
    found = stoker.doctor(loader, 0.016, seconds=5)
    # 1.5 workers are needed, and more than there are cores where others leave none.
    assert found.verdict in {"too few workers", "Python code"} or crowded(found.evidence)
    if found.verdict == "too few workers":
        assert found.change is not None
        assert found.change.startswith("DataLoader(..., num_workers=")
    stages = [stage["name"] for stage in found.evidence["loops"][0]["cost"]["stages"]]
    assert stages[0] == "sleep"
    assert children() == before
    assert loader._iterator is None
    assert watched() == []
    assert "STOKER_DOCTOR_DIR" not in os.environ
    later = stoker.doctor(torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=1), 0.05, seconds=8)
    assert later.verdict == "not data-bound" or crowded(later.evidence)
    assert len(later.evidence["loops"]) == 1


def test_torchs_loader_and_its_dice_are_as_before() -> None:
    own = torch.Generator().manual_seed(5)
    data = torch.utils.data.TensorDataset(torch.arange(40))
    sampler = torch.utils.data.DistributedSampler(data, num_replicas=1, rank=0)
    sampler.set_epoch(7)
    loaders = [
        torch.utils.data.DataLoader(data, batch_size=4, shuffle=True),
        torch.utils.data.DataLoader(data, batch_size=4, shuffle=True, generator=own),
        torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler),
    ]
    for loader in loaders:
        torch.manual_seed(1), random.seed(1), np.random.seed(1)
        if loader.generator is own:
            own.manual_seed(5)
        plain = [batch[0].tolist() for batch in copy.copy(loader)]
        torch.manual_seed(1), random.seed(1), np.random.seed(1)
        if loader.generator is own:
            own.manual_seed(5)
        found = stoker.doctor(loader, lambda batch: (torch.rand(1), random.random(), np.random.rand()), seconds=0.5)
        assert [finding["name"] for finding in found.findings if "set_epoch" in finding["name"]] == []
        dice = random.getstate()
        assert [batch[0].tolist() for batch in loader] == plain
        random.seed(1)
        assert dice == random.getstate()
    assert sampler.epoch == 7


class Stop(Exception):
    pass


@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_step_raises_is_raised(workers: int, photos: Path) -> None:
    before = children()
    calls: list[int] = []

    def step(batch: Any) -> None:
        calls.append(1)
        if len(calls) > 4:
            raise Stop("no more")

    theirs = torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=workers)
    ours = stoker.DataLoader(stoker.ImageFolder(photos), batch_size=4)
    state = ours.state_dict()
    for loader in (theirs, ours):
        calls.clear()
        with pytest.raises(Stop, match="no more"):
            stoker.doctor(loader, step, seconds=5)
    assert ours.state_dict() == state
    assert watched() == []
    assert children() == before
    ours.close()


def test_what_a_dataset_raises_is_raised() -> None:
    class Broken(Numbers):
        def __getitem__(self, i: int) -> Any:
            raise Stop(f"sample {i}")

    with pytest.raises(Stop, match="sample 0"):
        stoker.doctor(torch.utils.data.DataLoader(Broken(), batch_size=4), seconds=1)
    assert watched() == []


def test_errors(photos: Path) -> None:
    loader = stoker.DataLoader(stoker.ImageFolder(photos), batch_size=4)
    theirs = torch.utils.data.DataLoader(Numbers(), batch_size=4)
    empty = torch.utils.data.DataLoader(Numbers(length=2), batch_size=4, drop_last=True)

    def generator() -> Iterator[int]:
        yield 1

    for args, settings, says in (
        ((generator(),), {}, "loader is of type generator"),
        (([1, 2],), {}, "loader is of type list"),
        ((iter(theirs),), {}, "not its iterator"),
        ((loader, "step"), {}, "step is 'step'"),
        ((loader, -1), {}, "step is -1"),
        ((loader,), {"seconds": 0}, "seconds is 0"),
        ((loader,), {"seconds": "long"}, "seconds is 'long'"),
        ((empty,), {}, "gave no batch"),
    ):
        with pytest.raises(stoker.ConfigError, match=says):
            stoker.doctor(*args, **settings)
    loader.close()


def test_one_at_a_time() -> None:
    inside: list[str] = []

    def step(batch: Any) -> None:
        if not inside:
            try:
                stoker.doctor(torch.utils.data.DataLoader(Numbers(), batch_size=4), seconds=1)
            except stoker.ConfigError as error:
                inside.append(str(error))

    stoker.doctor(torch.utils.data.DataLoader(Numbers(), batch_size=4), step, seconds=0.3)
    assert "another call is running" in inside[0]
    assert threading.active_count() == 1 or watched() == []


@forms.long  # test_doctor.py has it in a script that it runs anyway
def test_under_the_doctor_itself_it_says_so(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import stoker, torch\n"
        "data = torch.utils.data.TensorDataset(torch.arange(40))\n"
        "try:\n"
        "    stoker.doctor(torch.utils.data.DataLoader(data), seconds=1)\n"
        "except stoker.ConfigError as error:\n"
        "    print(error)\n"
    )
    ran = subprocess.run(
        [_process.find(), "doctor", "--", sys.executable, str(script)], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert "already watches this process" in ran.stdout
