"""What all tests of the package share: a cache folder of their own, small datasets of real pictures, the engine."""

from __future__ import annotations

import gc
import gzip
import io
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import forms
import pytest
from hooked import Scripts
from PIL import Image

import stoker
from stoker import _engines, _fused, _notice

# What a shell starts in the background ignores Ctrl-C, and hands that down to the scripts of tests that press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Before torch is imported: its threads sleep while they wait for work. Where several tests share the cores, they would
# use all of them for nothing.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # when it is imported, it asks the internet for its newest version

TESTS = Path(__file__).resolve().parent
TOP = TESTS.parents[1]
DATA = TOP / "testdata"
PHOTOS = sorted((DATA / "photos").glob("*.jpg"))

# Tests of a GPU are not collected where there is none; `make gpu-test` sets STOKER_GPU, and they fail there.
GPU = bool(os.environ.get("STOKER_GPU")) or Path("/dev/nvidiactl").exists()
collect_ignore_glob = [] if GPU else ["gpu/*"]


def pytest_sessionstart(session: pytest.Session) -> None:
    if not os.environ.get("STOKER_ENGINE") and not (TOP / "build" / "stoker").exists():
        raise pytest.UsageError("there is no engine to test: run `make engine`, or set STOKER_ENGINE")


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, Any, Any]:
    """All cases of a test, whichever are asked for."""
    made = yield
    if isinstance(made, list):
        forms.thin(one for one in made if isinstance(one, pytest.Item))
    return made


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is left out: forms that are not asked for, and on a GPU what needs Triton, where it cannot run."""
    asked = [item for item in items if forms.of_part(item.nodeid)]
    chosen = [item for item in asked if forms.chosen(item)]
    if GPU and _fused.lacking():
        chosen = [item for item in chosen if item.get_closest_marker("triton") is None]
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Says how many tests of a GPU were not collected."""
    if not GPU and any((config.invocation_params.dir / arg).resolve() == TESTS for arg in config.args):
        texts = [path.read_text(encoding="utf-8") for path in (TESTS / "gpu").glob("test_*.py")]
        number = sum(text.count("\ndef test_") for text in texts)
        terminalreporter.write_line(f"{number} tests of a GPU were not collected: there is none here (make gpu-test)")


def pytest_collection_finish(session: pytest.Session) -> None:
    """What the modules of tests have imported, torch and others, is never garbage: gc.collect() does not look at it
    again, nor do forked workers, whose pages would be copied for it."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    gc.unfreeze()  # what is never collected would be told as a leak at the end


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Notes skips as tools/skips.py does, which prints them at the end of `make test`. In the process of xdist that
    collects the reports of others, or in the only one."""
    if report.skipped and isinstance(report.longrepr, tuple) and "PYTEST_XDIST_WORKER" not in os.environ:
        file, _, reason = report.longrepr
        skip = {
            "file": Path(file).name,
            "test": report.nodeid.rpartition("::")[2],
            "reason": reason.removeprefix("Skipped: "),
        }
        (TOP / "build").mkdir(exist_ok=True)
        with open(TOP / "build" / "skips.jsonl", "a", encoding="utf-8") as noted:
            noted.write(json.dumps(skip) + "\n")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["STOKER_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "PL_GLOBAL_SEED"):
        os.environ.pop(name, None)


@pytest.fixture(autouse=True)
def _fresh_client() -> Iterator[None]:
    """Every test begins without an engine, without deaths, without notices, and without a seed of torch's."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.seed()
    _engines.client().stop()
    _engines._client = _engines.Client()
    _notice._said.clear()
    logging.getLogger("stoker").setLevel(logging.NOTSET)  # a sample of a guide silences notices
    yield
    _engines.client().stop()
    _engines._client = _engines.Client()  # fixtures of a module come before the next test's own


def picture(number: int, size: tuple[int, int] = (80, 64)) -> Image.Image:
    """A small photograph, another one for every number."""
    photo: Image.Image
    with Image.open(PHOTOS[number % len(PHOTOS)]) as photo:
        photo.draft("RGB", (400, 400))
        side = number // len(PHOTOS) * 7 % 100
        box = (side, side, photo.width - 10, photo.height - 10)
        return photo.convert("RGB").resize(size, Image.Resampling.BILINEAR, box)


def jpeg(number: int, size: tuple[int, int] = (80, 64)) -> bytes:
    """The same as a JPEG file."""
    out = io.BytesIO()
    picture(number, size).save(out, "JPEG", quality=90)
    return out.getvalue()


def make_folder(root: Path, count: int, classes: int = 3) -> Path:
    """``count`` pictures in folders class0, class1, ..."""
    for i in range(count):
        path = root / f"class{i % classes}" / f"{i:04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(i))
    return root


def make_tar(path: Path, first: int, count: int) -> Path:
    """A shard of ``count`` samples with jpg, cls, txt and json."""
    with tarfile.open(path, "w") as shard:
        for i in range(first, first + count):
            fields = {
                "jpg": jpeg(i),
                "cls": str(i % 5).encode(),
                "txt": f"picture {i} — ü".encode(),
                "json": json.dumps({"number": i, "odd": bool(i % 2)}).encode(),
            }
            for name, body in fields.items():
                info = tarfile.TarInfo(f"dir/s{i:04d}.{name}")
                info.size = len(body)
                shard.addfile(info, io.BytesIO(body))
    return path


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """50 pictures in 3 classes. Never changed by a test."""
    return make_folder(tmp_path_factory.mktemp("folder"), 50)


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    """30 samples in 3 shards, as a brace pattern. Never changed by a test."""
    root = tmp_path_factory.mktemp("shards")
    for number, (first, count) in enumerate([(0, 11), (11, 9), (20, 10)]):
        make_tar(root / f"train-{number:03d}.tar", first, count)
    return str(root / "train-{000..002}.tar")


@pytest.fixture
def own_folder(tmp_path: Path, folder: Path) -> Path:
    """A copy of ``folder`` that a test may change."""
    return Path(shutil.copytree(folder, tmp_path / "own"))


def engines(parent: int | None = None) -> list[int]:
    """The running engines of a process: its children that were started as `... engine --fd N`."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if b"engine" in command and b"--fd" in command and stat[0] != "Z" and int(stat[1]) == (parent or os.getpid()):
            found.append(int(entry.name))
    return found


def engine() -> int:
    """The process id of this process's one engine."""
    (pid,) = engines()
    return pid


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    os.kill(pid, number)


def stop(pid: int) -> None:
    """Stops a process, and returns when all of its threads are stopped."""
    os.kill(pid, signal.SIGSTOP)

    def still() -> bool:
        stats = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
        return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)

    wait_until(still, "a stopped process runs on")


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    """Waits for what must come; the limit is only there so that a failure ends."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def fill_up(loader: Any, ahead: int, drain: Callable[[], None]) -> None:
    """Iterates a loader with ``device_prefetch=ahead`` until so many batches are ahead of the loop; never are more.
    An engine that answers slowly (the machine is busy) is not waited for, so one pass may not get there."""
    end = time.monotonic() + 60
    most = 0
    while most < ahead:
        assert time.monotonic() < end, f"{most} batches are ahead, of {ahead}"
        batches = iter(loader)
        for _ in range(8):
            next(batches)
            time.sleep(0.05)
            waiting = len(batches._pass._ahead)
            assert waiting <= ahead
            most = max(most, waiting)
        drain()


def run_python(code: str, *flags: str, env: dict[str, str] | None = None, timeout: float = 120) -> Any:
    """Runs code in another interpreter that finds the package and the tests."""
    path = os.pathsep.join([str(Path(stoker.__file__).parents[1]), str(Path(__file__).parent)])
    return subprocess.run(
        [sys.executable, *flags, "-c", code],
        env={**os.environ, "PYTHONPATH": path, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def stored(kind: str) -> Path:
    """The folder of the fixtures of a format."""
    found = [DATA / kind, TOP / "internal" / "stage" / "format" / kind / "testdata"]
    return next(path for path in found if (path / "make.py").exists())


@pytest.fixture(scope="session")
def unzip(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], str]:
    """The path of a fixture that is kept as .gz, unpacked."""
    root = tmp_path_factory.mktemp("unzipped")

    def unzipped(kind: str, name: str) -> str:
        path = root / kind / name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(gzip.decompress((stored(kind) / (name + ".gz")).read_bytes()))
        return str(path)

    return unzipped


@pytest.fixture
def scripts(tmp_path: Path) -> Iterator[Scripts]:
    scripts = Scripts(tmp_path)
    yield scripts
    scripts.close()
