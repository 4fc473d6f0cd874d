"""device="cuda" on a real device. Nothing here is skipped: where there is no device, nothing is collected
(`make test`), or the run fails (`make gpu-test`).

A slot is poisoned when it is returned, so that a copy that reads it too late shows.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import platform
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import stoker
from stoker import _copies, _cuda, _device, _fused, _notice
from stoker import transforms as T

pytestmark = pytest.mark.gpu

ROWS, SIDE, BATCH = 96, 224, 16
CUDA = torch.device("cuda", 0)
cuda: Any = torch.cuda  # parts of it have no types


@pytest.fixture(autouse=True)
def _poison(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_POISON", "1")


def row(number: int) -> Any:
    """A sample of which every byte is known."""
    flat = np.arange(SIDE * SIDE * 3, dtype=np.uint32) * np.uint32(2 * number + 1) + np.uint32(number)
    return (flat >> 3).astype(np.uint8).reshape(SIDE, SIDE, 3)


class Rows(torch.utils.data.Dataset[Any]):
    """The same, made by Python."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, number: int) -> Any:
        return {"x": torch.from_numpy(row(number)), "y": number, "name": f"s{number}"}


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("arrays")
    np.save(root / "x.npy", np.stack([row(number) for number in range(ROWS)]))
    np.save(root / "y.npy", np.arange(ROWS, dtype=np.int64))
    np.save(root / "t.npy", np.arange(ROWS * 64, dtype=np.int32).reshape(ROWS, 64))
    return root


def loader(root: Path, **keywords: Any) -> stoker.DataLoader[Any]:
    dataset = stoker.NpyDataset(x=str(root / "x.npy"), y=str(root / "y.npy")).to_tuple("x", "y")
    return stoker.DataLoader(dataset, **{"batch_size": BATCH, "shuffle": True, "seed": 3, "device": "cuda", **keywords})


@pytest.fixture(scope="module")
def truth() -> torch.Tensor:
    """All samples, on the device."""
    return torch.from_numpy(np.stack([row(number) for number in range(ROWS)])).to(CUDA)


def wrong(batch: Any, truth: torch.Tensor) -> Any:
    """How many bytes of a batch are wrong: a number on the device, so that nobody waits for it. Only the batch's own
    memory says which samples it should have."""
    x, y = (batch["x"], batch["y"]) if isinstance(batch, dict) else (batch[0], batch[1])
    return (truth[y] != x).sum() + (~batch.valid).sum()


def busy(milliseconds: float = 5.0) -> None:
    """Keeps the current stream busy."""
    cuda._sleep(int(milliseconds * 1e6))


def test_what_this_machine_is(record_property: Any) -> None:
    free, total = torch.cuda.mem_get_info()
    facts = {
        "device": torch.cuda.get_device_name(0),
        "driver": _driver(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": [free, total],
    }
    print(json.dumps(facts))
    for name, value in facts.items():
        record_property(name, value)
    assert total > 0


def _driver() -> str:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout.strip()
    return ""


ENDS: dict[str, list[Any]] = {
    "float32": [T.ToTensor(), T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])],
    "bfloat16": [T.ToDtype("bfloat16", scale=True), T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])],
    "float16": [T.ToDtype("float16"), T.Normalize([123.7, 116.3, 103.5], [58.4, 57.1, 57.4]), T.Normalize([0.1], [-3])],
    "float16 of float32": [T.ToTensor(), T.Normalize([0.4, 0.5, 0.6], [0.2, 0.3, 0.7]), T.ToDtype("float16")],
    "bfloat16 of float32": [T.ToTensor(), T.Normalize([0.5], [0.3]), T.ToDtype("bfloat16")],
}


@pytest.fixture
def floats() -> Iterator[_fused.Floats]:
    """What makes floats on the device, for a test to change."""
    copies = _device._devices.get(0)
    if copies is None:
        copies = _device._devices[0] = _copies.Copies(_cuda.Port(0))
    found = copies._floats
    was = found._asked, found._kernel
    found._asked, found._kernel = False, None
    yield found
    found._asked, found._kernel = was


WAYS = ["operators", pytest.param("kernel", marks=pytest.mark.triton)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("end", ENDS)
def test_floats_of_bytes(arrays: Path, floats: _fused.Floats, end: str, layout: str, way: str) -> None:
    """Made there, they are the engine's to the bit; the rows have every byte in every channel."""
    floats._asked = way == "operators"
    pictures = stoker.NpyDataset(
        x=str(arrays / "x.npy"), y=str(arrays / "y.npy"), fields=[stoker.Field("x", transform=ENDS[end]), "y"]
    ).to_tuple("x", "y")
    made: Any = stoker.DataLoader
    keywords: dict[str, Any] = {"batch_size": BATCH, "shuffle": True, "seed": 3, "layout": layout}
    with made(pictures, **keywords) as here, made(pictures, device="cuda", **keywords) as there:
        for one, other in zip(here, there, strict=True):
            assert (one[0].dtype, one[0].shape, one[0].stride()) == (other[0].dtype, other[0].shape, other[0].stride())
            assert torch.equal(one[0].view(torch.uint8), other[0].cpu().view(torch.uint8))
            assert torch.equal(one[1], other[1].cpu())
        assert here.state_dict() == there.state_dict()
        assert there.stats()["device"]["bytes"] < 1.1 * ROWS * SIDE * SIDE * 3
    assert floats.fused == (way == "kernel")  # nor has the kernel failed
    assert not any("one kernel" in text for text in _notice._said)


MEAN, STD = (0.485, 0.456, 0.406, 0.5), (0.229, 0.224, 0.225, 0.3)
LEFTS: dict[str, _fused.Left] = {
    "float32": _fused.Left("float32", tuple(1 / 255 / s for s in STD), (-2.1, -2.0, -1.8, 0.3), ()),
    "float32, alike": _fused.Left("float32", (1 / 255,), (-0.5,), ()),
    "bfloat16": _fused.Left("bfloat16", (), (), (_fused.Step("bfloat16", True), _fused.Step(mean=MEAN, std=STD))),
    "float16": _fused.Left("float16", (), (), (_fused.Step("float16"), _fused.Step(mean=MEAN, std=STD))),
    "bfloat16 of float32": _fused.Left(
        "bfloat16", (), (), (_fused.Step("float32", True), _fused.Step(mean=MEAN, std=STD), _fused.Step("bfloat16"))
    ),
}


@pytest.mark.triton
@pytest.mark.parametrize("layout", ["nchw", "channels_last", "nhwc"])
@pytest.mark.parametrize("name", LEFTS)
def test_one_kernel(name: str, layout: str) -> None:
    """It gives the bits of the operators, on the device and here, and nothing waits for it; also for pictures of odd
    sizes, and those that are a part of others."""
    kernel, planes = _fused.kernel(), layout != "nhwc"

    def known(*given: Any) -> bool:
        assert kernel(*given)
        return True

    for channels in (1, 3, 4):
        steps = tuple(one._replace(mean=one.mean[:channels], std=one.std[:channels]) for one in LEFTS[name].steps)
        left = LEFTS[name]._replace(steps=steps, scale=LEFTS[name].scale[:channels], bias=LEFTS[name].bias[:channels])
        whole = torch.randint(0, 256, (5, 240, 256, channels), dtype=torch.uint8)
        odd = whole.flatten()[: 5 * 37 * 53 * channels].view(5, 37, 53, channels)
        for here in (whole, whole[:, 3:230, 7:242], odd):
            there = whole.to(CUDA).as_strided(here.shape, here.stride(), here.storage_offset())
            if planes:
                here, there = here.permute(0, 3, 1, 2), there.permute(0, 3, 1, 2)
            cuda.set_sync_debug_mode("error")
            try:
                one, other = (made(there, left, layout, by) for by in (known, None))
            finally:
                cuda.set_sync_debug_mode("default")
            bits = torch.int32 if left.dtype == "float32" else torch.int16
            assert torch.equal(one.view(bits), other.view(bits))
            assert torch.equal(one.cpu().view(bits), made(here, left, layout, None).view(bits))


def made(given: torch.Tensor, left: _fused.Left, layout: str, by: Any) -> torch.Tensor:
    """Floats, by a kernel or, if that is None, by operators."""

    class Port:
        name = "cuda:0"
        numbers = _cuda.Port(0).numbers if given.is_cuda else staticmethod(_fused.numbers)

        @staticmethod
        def kernel() -> Any:
            return by

    like = torch.empty(given.shape, dtype=getattr(torch, left.dtype), device="meta")
    if layout == "channels_last":
        like = like.contiguous(memory_format=torch.channels_last)
    out = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=given.device)
    floats = _fused.Floats(Port)
    floats.make(out, None, given, left, layout != "nhwc")
    assert floats.fused == (by is not None)  # it has not failed
    return out


def test_floats_without_a_compiler(arrays: Path) -> None:
    """One notice, and the same numbers; in a process of its own, because this one has loaded Triton."""
    code = """
        import sys, torch, stoker
        from stoker import transforms as T
        x, y = sys.argv[1:]
        fields = [stoker.Field("x", transform=[T.ToTensor()]), "y"]
        data = stoker.NpyDataset(x=x, y=y, fields=fields).to_tuple("x", "y")
        here, there = (list(stoker.DataLoader(data, 16, device=device)) for device in ("cpu", "cuda"))
        assert all(torch.equal(one[0], other[0].cpu()) for one, other in zip(here, there, strict=True))
    """
    run = [sys.executable, "-c", textwrap.dedent(code), *(str(arrays / name) for name in ("x.npy", "y.npy"))]
    environment = {**os.environ, "CC": "/none"}
    done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("and not by one kernel") == 1


LEFT: dict[str, list[Any]] = {
    "crops": [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.RandomCrop(24, padding=4, padding_mode="reflect")],
    "bicubic": [T.RandomResizedCrop(24, interpolation=T.InterpolationMode.BICUBIC)],
    "nearest": [T.RandomResizedCrop(24, interpolation=T.InterpolationMode.NEAREST)],
    "colours": [T.ColorJitter(0.4, 0.4, 0.4, 0.2), T.RandomGrayscale(0.3), T.RandomPhotometricDistort()],
    "tables": [
        T.RandomEqualize(),
        T.RandomAutocontrast(),
        T.RandomPosterize(3),
        T.RandomSolarize(99),
        T.RandomInvert(),
    ],
    "neighbours": [
        T.RandomAdjustSharpness(3),
        T.GaussianBlur((5, 9), (0.3, 2.0)),
        T.RandomErasing(0.9, value=(9, 99, 7)),
    ],
    "warps": [
        T.RandomRotation(40, fill=7),
        T.RandomAffine(20, (0.1, 0.2), (0.8, 1.2), 9),
        T.RandomPerspective(0.5, 0.8),
    ],
    "bilinear warps": [T.RandomAffine(20, (0.1, 0.2), (0.8, 1.2), 9, T.InterpolationMode.BILINEAR, fill=9)],
    "policies": [T.RandAugment(3, 11), T.TrivialAugmentWide(), T.AutoAugment()],
    "floats": [T.RandAugment(), T.ToTensor(), T.RandomErasing(0.7, value=0.5), T.Normalize([0.5] * 3, [0.3] * 3)],
    "noise": [
        T.RandomCrop(100),
        T.ToTensor(),
        T.RandomErasing(0.7, value="random"),
        T.Normalize([0.5] * 3, [0.3] * 3),
        T.RandomErasing(0.5, value="random"),
    ],
    "halves": [T.ColorJitter(0.4), T.ToDtype("bfloat16", scale=True), T.Normalize([0.5] * 3, [0.3] * 3)],
    "erased halves": [
        T.RandomCrop(100),
        T.ToDtype("float16", scale=True),
        T.RandomErasing(0.7, value=(0.1, 0.4, 0.7)),
        T.Normalize([0.5] * 3, [0.3] * 3),
        T.RandomErasing(0.7, value="random"),
    ],
}


@pytest.mark.parametrize("name", LEFT)
def test_device_transform(arrays: Path, name: str) -> None:
    """Pictures that the device augments are the engine's to the bit."""
    keywords: dict[str, Any] = {"batch_size": BATCH, "shuffle": True, "seed": 3}

    def pictures(transform: list[Any]) -> Any:
        fields: list[Any] = [stoker.Field("x", transform=transform, decode="rgb"), "y"]
        return stoker.NpyDataset(x=str(arrays / "x.npy"), y=str(arrays / "y.npy"), fields=fields).to_tuple("x", "y")

    made: Any = stoker.DataLoader
    with (
        made(pictures(LEFT[name]), **keywords) as here,
        made(pictures([]), device="cuda", device_transform=LEFT[name], **keywords) as there,
    ):
        cuda.set_sync_debug_mode("error")  # nothing waits for the device
        try:
            found = list(there)
        finally:
            cuda.set_sync_debug_mode("default")
        for one, other in zip(here, found, strict=True):
            assert other[0].is_cuda
            assert (one[0].dtype, one[0].shape, one[0].stride()) == (other[0].dtype, other[0].shape, other[0].stride())
            wrong = (one[0].view(torch.uint8) != other[0].cpu().view(torch.uint8)).sum()
            assert int(wrong) == 0, f"{int(wrong)} of {one[0].numel()} bytes"
        assert there.stats()["device"]["transforms_busy_s"] > 0


MIXES: dict[str, tuple[list[Any], Any]] = {
    "MixUp": ([T.ToTensor(), T.Normalize([0.5] * 3, [0.3] * 3)], T.MixUp(num_classes=ROWS)),
    "MixUp of float16": ([T.ToDtype("float16", scale=True)], T.MixUp(num_classes=ROWS)),
    "MixUp of bfloat16": ([T.ToTensor(), T.ToDtype("bfloat16")], T.MixUp(num_classes=ROWS)),
    "CutMix": ([], T.CutMix(num_classes=ROWS)),
    "either": (
        [T.ToTensor(), T.RandomErasing(0.5, value=0.25)],
        T.RandomChoice([T.MixUp(alpha=0.4, num_classes=ROWS), T.CutMix(num_classes=ROWS)]),
    ),
}


@pytest.mark.parametrize("where", ["batch_transform", "device_transform"])
@pytest.mark.parametrize("name", MIXES)
def test_mixing(arrays: Path, name: str, where: str) -> None:
    """Batches that the device mixes are the engine's to the bit, and so are labels; the last is not full."""
    end, mix = MIXES[name]
    front = [T.RandomCrop(200), T.RandomHorizontalFlip()]
    keywords: dict[str, Any] = {"batch_size": 20, "shuffle": True, "seed": 3, "tail": "fill"}

    def pictures(transform: list[Any]) -> Any:
        fields: list[Any] = [stoker.Field("x", transform=transform, decode="rgb"), "y"]
        return stoker.NpyDataset(x=str(arrays / "x.npy"), y=str(arrays / "y.npy"), fields=fields).to_tuple("x", "y")

    made: Any = stoker.DataLoader
    there = made(pictures([*front, *end]), device="cuda", batch_transform=mix, **keywords)
    if where == "device_transform":
        there = made(pictures(front), device="cuda", device_transform=[T.RandomInvert(0.5), *end, mix], **keywords)
        front = [*front, T.RandomInvert(0.5)]
    with made(pictures([*front, *end]), batch_transform=mix, **keywords) as here, there:
        cuda.set_sync_debug_mode("error")  # nothing waits for the device
        try:
            found = [batch for _ in range(2) for batch in there]
        finally:
            cuda.set_sync_debug_mode("default")
        for one, other in zip([batch for _ in range(2) for batch in here], found, strict=True):
            for a, b in zip(one, other, strict=True):
                assert b.is_cuda
                assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
                assert torch.equal(a.contiguous().view(torch.uint8), b.cpu().contiguous().view(torch.uint8))
        if where == "batch_transform":
            assert here.state_dict() == there.state_dict()


def test_slots_can_be_pinned_in_place() -> None:
    """cuMemHostRegister of a shared mapping, which is what a slot is; a second call, a refusal, and none pending."""
    import ctypes
    import mmap

    port = _cuda.Port(0)
    fd = os.memfd_create("slot")
    os.ftruncate(fd, 1 << 22)
    memory = mmap.mmap(fd, 1 << 22)
    os.close(fd)
    root = (ctypes.c_ubyte * (1 << 22)).from_buffer(memory)
    address = ctypes.addressof(root)
    assert port.register(address, 1 << 22)
    assert not port.register(address, 1 << 22)  # somebody else has done it
    here = torch.frombuffer(root, dtype=torch.uint8)
    assert here.is_pinned()
    here.fill_(7)
    with port.copying():
        there = port.empty(1 << 22)
        port.copy(there, here)
        end = port.mark()
    port.finish(end)
    assert int(there.sum()) == 7 << 22
    port.unregister(address)
    assert not here.is_pinned()
    with pytest.raises(_cuda.Refused, match="CUDA_ERROR"):
        port.register(0x1000, 4096)
    torch.cuda.synchronize()
    assert int(torch.ones(3, device=CUDA).sum()) == 3  # nothing is pending


@pytest.mark.parametrize("keep", ["dropped at once", "kept"])
@pytest.mark.parametrize("stream", ["default", "own"])
def test_every_byte_arrives_while_the_stream_is_busy(arrays: Path, truth: torch.Tensor, keep: str, stream: str) -> None:
    """The loop is far ahead of its stream: batches are read long after the loop has dropped them."""
    own = cuda.Stream() if stream == "own" else torch.cuda.current_stream()
    own.wait_stream(torch.cuda.current_stream())
    found, kept, ids = [], [], []
    with torch.cuda.stream(own), loader(arrays) as batches:
        for _ in range(4):
            for batch in batches:
                assert batch[0].device == batch[1].device == batch.valid.device == CUDA
                assert batch.ids.device.type == "cpu"
                busy(3.0)
                found.append(wrong(batch, truth))
                ids += batch.ids.tolist()
                if keep == "kept":
                    kept.append((batch[0][1:3], batch[1][1:3]))
                del batch
        found += [(truth[y] != x).sum() for x, y in kept]
        assert sum(int(one) for one in found) == 0
        assert sorted(ids) == sorted(4 * list(range(ROWS)))
        told = batches.stats()["device"]
        print("device:", json.dumps(told))
        assert told["copies"] > 0


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_python(truth: torch.Tensor, workers: int) -> None:
    with stoker.DataLoader(Rows(), BATCH, num_workers=workers, device="cuda") as batches:
        found = []
        for batch in batches:
            busy(2.0)
            found.append(wrong(batch, truth))
            assert batch["name"] == [f"s{number}" for number in batch.ids.tolist()]
            del batch
        assert sum(int(one) for one in found) == 0


def test_two_loaders_at_once(arrays: Path, truth: torch.Tensor) -> None:
    with loader(arrays) as one, loader(arrays, seed=9, batch_size=8) as two:
        found = []
        for a, b in zip(one, two, strict=False):
            busy(2.0)
            found += [wrong(a, truth), wrong(b, truth)]
            del a, b
        assert sum(int(x) for x in found) == 0


def test_photographs(tmp_path: Path) -> None:
    """The photographs that come with the sources, as batches of pixels and as normalised floats."""
    photos = sorted((Path(__file__).resolve().parents[3] / "testdata" / "photos").glob("*.jpg"))
    for number, photo in enumerate(photos * 3):
        (tmp_path / f"class{number % 3}").mkdir(exist_ok=True)
        (tmp_path / f"class{number % 3}" / f"{number}.jpg").symlink_to(photo)
    T = stoker.transforms
    for transform in (
        T.CenterCrop(224),
        T.Compose([T.RandomResizedCrop(224), T.ToTensor(), T.Normalize([0.5] * 3, [0.25] * 3)]),
    ):
        dataset = stoker.ImageFolder(tmp_path, transform)
        with (
            stoker.DataLoader(dataset, 4, seed=2) as plain,
            stoker.DataLoader(dataset, 4, seed=2, device="cuda") as gpu,
        ):
            for here, there in zip(plain, gpu, strict=True):
                assert there[0].stride() == here[0].stride()
                assert torch.equal(there[0].cpu(), here[0])
                assert torch.equal(there[1].cpu(), here[1])


def test_a_bundle_of_small_batches(arrays: Path) -> None:
    dataset = stoker.NpyDataset(str(arrays / "t.npy"))
    with stoker.DataLoader(dataset, 2, device="cuda") as batches:
        for step, batch in enumerate(batches):
            expected = torch.arange(step * 128, step * 128 + 128, dtype=torch.int32).view(2, 64)
            assert torch.equal(batch.cpu(), expected)
        told = batches.stats()["device"]
        assert told["copies"] < ROWS // 2


def test_next_does_not_wait_for_the_device(arrays: Path) -> None:
    """The loop's stream is busy for a second; the loop gets all its batches meanwhile."""
    with loader(arrays) as batches:
        kept = list(batches)  # memory and slots are there
        del kept
        torch.cuda.synchronize()
        busy(1500.0)
        event = cuda.Event()
        event.record()
        rows = sum(len(batch.ids) for batch in batches)
        assert rows == ROWS
        assert not event.query(), "next() waited for the loop's stream"
        torch.cuda.synchronize()


def test_state_and_resume(arrays: Path) -> None:
    with loader(arrays, device=None) as plain, loader(arrays) as gpu:
        for here, there in zip(plain, gpu, strict=True):
            assert there.ids.tolist() == here.ids.tolist() == there[1].tolist()
            assert gpu.state_dict() == plain.state_dict()
            if here.step == 2:
                state = gpu.state_dict()
        plain.load_state_dict(state)
        gpu.load_state_dict(state)
        assert [batch.ids.tolist() for batch in gpu] == [batch.ids.tolist() for batch in plain]


def test_breaks_and_exceptions(arrays: Path, truth: torch.Tensor) -> None:
    with loader(arrays) as batches:
        found = []
        for number in range(30):
            with contextlib.suppress(ZeroDivisionError):
                for step, batch in enumerate(batches):
                    busy(0.5)
                    found.append(wrong(batch, truth))
                    if step == number % 4:
                        if number % 2:
                            raise ZeroDivisionError
                        break
        del batch
        assert sum(int(one) for one in found) == 0
        gc.collect()
        _device.settle()
        for _ in range(100):
            if not batches.stats()["leased"]:
                break
            time.sleep(0.02)
        assert batches.stats()["leased"] == 0


def test_moves_leave_a_batch_that_is_there(arrays: Path) -> None:
    with loader(arrays) as batches:
        batch = next(iter(batches))
        for moved in (batch.to("cuda"), batch.to(CUDA, non_blocking=True)):
            assert type(moved) is type(batch)
            assert moved[0] is batch[0]
            assert moved[1] is batch[1]
            assert moved.ids is batch.ids


def test_memory_is_flat(arrays: Path) -> None:
    with loader(arrays) as batches:
        seen, pinned = [], []
        for epoch in range(50):
            for batch in batches:
                del batch
            torch.cuda.synchronize()
            if epoch >= 10:
                seen.append(torch.cuda.memory_reserved())
                pinned.append(len(_device._devices[0].pins._pins))
        print("reserved:", seen[0], seen[-1], "pinned slots:", pinned[0], pinned[-1])
        assert seen[-1] <= seen[0] + (64 << 20)
        assert max(pinned) <= 32


def test_no_memory_on_the_device() -> None:
    with stoker.DataLoader(stoker.Synthetic(1024, (SIDE, SIDE, 3)), 128, device="cuda") as batches:
        iterator = iter(batches)
        held = [next(iterator)]
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        _, total = torch.cuda.mem_get_info()
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (1 << 20)) / total)
        try:
            with pytest.raises(stoker.ResourceError, match="no memory on cuda:0") as caught:
                while True:
                    held.append(next(iterator))
            assert isinstance(caught.value.__cause__, torch.cuda.OutOfMemoryError)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        got = [number for batch in held for number in batch.ids.tolist()]
        held.clear()
        got += [number for batch in iterator for number in batch.ids.tolist()]
        assert got == list(range(1024))


def test_next_in_a_capture_is_an_error(arrays: Path) -> None:
    with loader(arrays) as batches:
        iterator = iter(batches)
        batch = next(iterator)
        static = torch.empty_like(batch[0])
        graph = torch.cuda.CUDAGraph()
        abandoned = iter(batches)
        next(abandoned)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            total = static.float().mean()
            with pytest.raises(stoker.ConfigError, match="captured"):
                next(iterator)
            del abandoned
            gc.collect()
        for batch in iterator:
            static.copy_(batch[0])
            graph.replay()
            assert float(total) == pytest.approx(float(batch[0].float().mean()), rel=1e-4)


def test_a_graph_over_static_buffers(arrays: Path, truth: torch.Tensor) -> None:
    """Captured over the first batch, it runs over all of them, in several epochs."""
    with loader(arrays, static_buffers=True, drop_last=True) as batches:
        graph, found = torch.cuda.CUDAGraph(), []
        total = None
        for _ in range(3):
            for batch in batches:
                x, y = batch
                if total is None:
                    warm = cuda.Stream()
                    warm.wait_stream(torch.cuda.current_stream())
                    with torch.cuda.stream(warm):
                        (x.float().sum((1, 2, 3)) + y).sum()
                    torch.cuda.current_stream().wait_stream(warm)
                    with torch.cuda.graph(graph):
                        total = (x.float().sum((1, 2, 3)) + y).sum()
                graph.replay()
                found.append((total.clone(), (truth[batch.ids.to(CUDA)].float().sum((1, 2, 3)) + y).sum()))
        for got, expected in found:
            assert float(got) == pytest.approx(float(expected), rel=1e-5)


def test_wrappers(truth: torch.Tensor) -> None:
    for pin in (False, True):
        theirs = torch.utils.data.DataLoader(Rows(), BATCH, num_workers=2, pin_memory=pin)
        for wrap in (stoker.PrefetchLoader, stoker.CUDAPrefetcher):
            found, ids = [], []
            for batch in wrap(theirs, "cuda"):
                busy(1.0)
                found.append((truth[batch["y"]] != batch["x"]).sum())
                ids.append(batch["y"])
                del batch
            assert sum(int(one) for one in found) == 0
            assert torch.cat(ids).tolist() == list(range(ROWS))


def test_wrappers_of_our_loader(arrays: Path, truth: torch.Tensor) -> None:
    with loader(arrays, device=None) as plain:
        found = []
        for batch in stoker.PrefetchLoader(plain, CUDA):
            busy(1.0)
            found.append(wrong(batch, truth))
        assert sum(int(one) for one in found) == 0


def test_bad_devices() -> None:
    dataset = stoker.Synthetic(8, (4, 4, 3))
    with pytest.raises(stoker.ConfigError, match=r"cuda:0 \(.+\)"):
        stoker.DataLoader(dataset, 2, device=f"cuda:{torch.cuda.device_count()}")
    with pytest.raises(stoker.ConfigError, match="output is 'numpy'"):
        stoker.DataLoader(dataset, 2, device="cuda", output="numpy")


@pytest.mark.parametrize("how", ["falls off the end", "keeps iterators", "raises"])
def test_a_process_ends_with_copies_in_flight(arrays: Path, how: str) -> None:
    script = f"""
    import stoker, torch
    loader = stoker.DataLoader(stoker.NpyDataset({str(arrays / "x.npy")!r}), 16, device="cuda")
    batches = iter(loader)
    next(batches)
    torch.cuda._sleep(int(2e8))
    next(batches)
    print("reached", flush=True)
    if {how == "raises"}:
        raise SystemExit(3)
    if {how == "falls off the end"}:
        del batches
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert "reached" in done.stdout, done.stderr
    assert done.returncode == (3 if how == "raises" else 0), done.stderr
    assert "Error" not in done.stderr, done.stderr


def test_the_engine_is_killed(arrays: Path, truth: torch.Tensor) -> None:
    import signal

    from stoker import _engines

    with loader(arrays, batch_size=8) as batches:
        found, ids = [], []
        for step, batch in enumerate(batches):
            busy(1.0)
            found.append(wrong(batch, truth))
            ids += batch.ids.tolist()
            if step == 3:
                os.kill(_engines.client().engine().pid, signal.SIGKILL)
        assert sum(int(one) for one in found) == 0
        assert sorted(ids) == list(range(ROWS))


def test_lightning_and_accelerate(arrays: Path) -> None:
    """Their moves leave batches as they are. Each is tried where it is installed."""
    tried = []
    with contextlib.suppress(ImportError):
        from accelerate import Accelerator

        with loader(arrays) as batches:
            prepared = Accelerator().prepare(batches)
            for batch in prepared:
                assert batch[0].device == CUDA
            tried.append("accelerate")
    with contextlib.suppress(ImportError):
        from lightning.fabric.utilities.apply_func import move_data_to_device  # type: ignore[import-not-found]

        with loader(arrays) as batches:
            batch = next(iter(batches))
            assert move_data_to_device(batch, CUDA)[0] is batch[0]
            tried.append("lightning")
    print("tried:", tried)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    gc.collect()
    torch.cuda.synchronize()
    _device.settle()
    for copies in _device._devices.values():
        assert copies._flights == []
        assert copies._lost == []


def test_how_long_the_loop_waits_for_copies(arrays: Path) -> None:
    """A loop with nothing to do waits for every copy, and says so; one that is busy waits for few."""
    told = {}
    for name, milliseconds in (("idle", 0.0), ("busy", 20.0)):
        with loader(arrays) as batches:
            list(batches)  # slots are pinned, and memory is there
            torch.cuda.synchronize()
            _device.settle()
            before = batches.stats()["device"]
            for batch in batches:
                if milliseconds:
                    busy(milliseconds)
                batch[0].sum().item()  # waits, so that a step has an end
            _device.settle()
            after = batches.stats()["device"]
        was, now = before["stages"][0], after["stages"][0]
        told[name] = {key: now[key] - was[key] for key in ("items", "bytes", "busy_s", "waited_s")}
    print("device:", json.dumps(told))
    for one in told.values():
        assert one["items"] > 0
        assert one["busy_s"] > 0
        assert 0 <= one["waited_s"] < 1.0
    # A step of milliseconds hides a copy of less.
    assert told["busy"]["waited_s"] <= told["busy"]["busy_s"]


PAGEABLE = """
    import sys, time
    import torch
    from torch.utils.data import DataLoader, Dataset

    PIN, SECONDS = sys.argv[1] == "pinned", float(sys.argv[2])

    class Pictures(Dataset):
        def __len__(self):
            return 1 << 20
        def __getitem__(self, i):
            return torch.full((3, 224, 224), float(i % 256))

    def step(cycles):
        torch.cuda._sleep(cycles)  # the model

    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    step(1000)
    begin.record()
    step(10_000_000)
    end.record()
    torch.cuda.synchronize()
    cycles = int(10_000_000 * 4.0 / begin.elapsed_time(end))  # of 4 ms

    loader = DataLoader(Pictures(), 32, num_workers=8, pin_memory=PIN)
    batches, since = 0, None
    first = time.monotonic()
    for images in loader:
        images = images.to("cuda", non_blocking=PIN)
        step(cycles)
        images[0, 0, 0, 0].item()
        now = time.monotonic()
        if since is None and now - first > SECONDS / 3:
            batches, since = 0, now
        batches += 1
        if now - first > SECONDS:
            break
    print("rate", (batches - 1) / (now - since), flush=True)
"""


def test_the_doctor_names_pageable_copies(tmp_path: Path, record_property: Any) -> None:
    """A script with pageable copies, unchanged under the doctor; what it predicts against what pinning brings."""
    from stoker import _process

    (tmp_path / "train.py").write_text(textwrap.dedent(PAGEABLE))
    train = [sys.executable, "train.py"]

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    report = json.loads(run(str(_process.find()), "doctor", "--json", "--stop", "--", *train, "pageable", "100"))
    rates = {how: float(run(*train, how, "6").split()[-1]) for how in ("pageable", "pinned")}
    verdict, (loop, *_) = report["verdict"], report["evidence"]["loops"]
    gain = rates["pinned"] / rates["pageable"]
    told = {
        "verdict": verdict["name"],
        "found": [one["name"] for one in report["findings"]],
        "copy_s": loop.get("pageable_copy_s", {}).get("value"),
        "predicted": verdict.get("speedup"),
        "gained": gain,
        **rates,
    }
    print("doctor:", json.dumps(told))
    record_property("doctor", told)
    assert told["verdict"] == "pageable transfer"
    assert "not pinned" in told["found"]
    assert "CUDA before fork" not in told["found"]  # it is, and no worker uses it
    assert gain > 1.1
    assert abs(told["predicted"] - gain) <= 0.35 * gain
