"""The kernel that makes floats of bytes: the bits of torch's operators, and the operators where it cannot run.

Where there is no GPU, it runs in Triton's interpreter, on tensors of the CPU. The interpreter knows nothing of fused
operations, so what a GPU would run is compiled too, and its instructions are read. python/tests/gpu runs it.
"""

from __future__ import annotations

import importlib.util
import itertools
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from forms import mostly, thinned
from pretend import Device, device, interpreted_again
from test_fused import ENDS, MEAN, NORMAL, STD, DataLoader, left, same

import stoker
from stoker import _fused, _notice, _triton
from stoker import transforms as T
from stoker._fused import Floats, Left, Raw, Result, Step

__all__ = ["device"]

M, S = tuple(MEAN), tuple(STD)
TO = {name: Step(name, scale=False) for name in ("float32", "float16", "bfloat16")}
SCALED = {name: Step(name, scale=True) for name in ("float32", "float16", "bfloat16")}
NORMALISED = Step(mean=M, std=S)
TABLE: dict[str, Left] = {
    "ToTensor": Left("float32", (1 / 255,), (0.0,), ()),
    "normalised": Left("float32", tuple(1 / 255 / s for s in S), tuple(-m / s for m, s in zip(M, S, strict=True)), ()),
    "minus zero": Left("float32", (-0.5,), (-0.0,), ()),
    "tiny": Left("float32", (1e-40,), (-1e-39,), ()),
    "bfloat16": Left("bfloat16", (), (), (SCALED["bfloat16"], NORMALISED)),
    "bfloat16, whole": Left("bfloat16", (), (), (TO["bfloat16"],)),
    "bfloat16, twice": Left("bfloat16", (), (), (SCALED["bfloat16"], NORMALISED, Step(mean=(0.1,), std=(-2.0,)))),
    "bfloat16 of float32": Left("bfloat16", (), (), (SCALED["float32"], NORMALISED, TO["bfloat16"])),
    "float16": Left("float16", (), (), (TO["float16"], Step(mean=(123.7, 116.3, 103.5), std=(58.4, 57.1, 57.4)))),
    "float16, large": Left("float16", (), (), (TO["float16"], Step(mean=(0.0,), std=(1e-4,)))),  # infinities
    "float16 of float32": Left("float16", (), (), (SCALED["float32"], NORMALISED, TO["float16"])),
    "float16 of float32, normalised": Left("float16", (), (), (TO["float32"], TO["float16"], NORMALISED)),
}


@pytest.fixture(scope="module")
def interpreted() -> Any:
    return interpreted_again(_triton)


class Port:
    """What Floats wants of a port."""

    name = "cuda:0"
    numbers = staticmethod(_fused.numbers)

    def __init__(self, made: Any) -> None:
        self.made = made

    def kernel(self) -> Any:
        return self.made


def notices() -> list[str]:
    """All but the lines of loaders that start."""
    return [text for text in _notice._said if not text.startswith("native")]


def memory(shape: tuple[int, ...], kind: Any, layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor in the middle of memory with a pattern, and the memory."""
    number = torch.Size(shape).numel()
    whole = torch.full((number + 64,), 77, dtype=torch.uint8).to(kind)
    like = torch.empty(shape, device="meta")
    if layout == "channels_last":
        like = like.contiguous(memory_format=torch.channels_last)
    return whole[32 : 32 + number].as_strided(shape, like.stride()), whole


def compared(kernel: Any, one: Left, given: torch.Tensor, planes: bool, layout: str = "", knows: bool = True) -> None:
    """The kernel against the operators, to the bit; and it writes nowhere else."""
    kind = getattr(torch, one.dtype)
    found, whole = memory(tuple(given.shape), kind, layout)
    assert kernel.make(found, given, *_fused.coded(one), planes) is knows
    if not knows:
        assert bool((whole == 77).all())
        return
    want, all_of_it = memory(tuple(given.shape), kind, layout)
    Floats(Port(None)).make(want, None, given, one, planes)
    assert torch.equal(whole.view(torch.uint8), all_of_it.view(torch.uint8))


def every_byte(channels: int) -> torch.Tensor:
    """A picture of rows, columns and channels: each channel has every byte."""
    flat = torch.arange(256)
    return (
        torch.stack([(flat * (2 * c + 1) + c) % 256 for c in range(channels)], 1).to(torch.uint8).view(16, 16, channels)
    )


@thinned
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
@pytest.mark.parametrize("layout", ["nchw", "channels_last", "nhwc"])
@pytest.mark.parametrize("name", TABLE)
def test_bits(interpreted: Any, name: str, layout: str) -> None:
    given = torch.stack([every_byte(3), every_byte(3).flip(0)])
    planes = layout != "nhwc"
    compared(interpreted, TABLE[name], given.permute(0, 3, 1, 2) if planes else given, planes, layout)


@pytest.mark.parametrize("channels", mostly([1, 2, 3, 4, 6], 1, 3, 4))
def test_channels(interpreted: Any, channels: int) -> None:
    mean, std = (tuple(at + 0.1 * c for c in range(channels)) for at in (0.4, 0.2))
    for dtype in ("float32", "bfloat16"):
        steps = (SCALED[dtype], Step(mean=mean, std=std))
        normal = Left(dtype, (), (), steps) if dtype != "float32" else Left(dtype, std, mean, ())
        for one in (normal, TABLE["ToTensor" if dtype == "float32" else "bfloat16, whole"]):
            given = every_byte(channels)[None]
            compared(interpreted, one, given.permute(0, 3, 1, 2), True)
            compared(interpreted, one, given, False)
            compared(interpreted, one, given[0].permute(2, 0, 1), True)  # without an axis for pictures
            compared(interpreted, one, given[0], False)


SIZES = [(1, 1), (31, 33), (32, 64), (45, 47)]
MADE = ["ToTensor", "normalised", "bfloat16"]


@pytest.mark.parametrize(
    ("size", "name"),
    mostly(
        itertools.product(SIZES, MADE),
        *(((1, 1), "bfloat16"), ((31, 33), "bfloat16"), ((32, 64), "ToTensor"), ((45, 47), "ToTensor")),
    ),
)
def test_sizes(interpreted: Any, name: str, size: tuple[int, int]) -> None:
    """Less than a block, blocks that end within a program, and more than one program."""
    given = torch.randint(0, 256, (3, *size, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    compared(interpreted, TABLE[name], given.permute(0, 3, 1, 2), True)
    compared(interpreted, TABLE[name], given, False)


@pytest.mark.parametrize("name", mostly(["ToTensor", "bfloat16"], "ToTensor"))
def test_memory(interpreted: Any, name: str) -> None:
    """Pictures that are a part of other memory, of any order, and none."""
    large = torch.arange(3 * 8 * 11 * 5).to(torch.uint8).view(3, 8, 11, 5)
    one = TABLE[name]
    for given in (
        large[:2, :, :, :3],  # pixels with gaps
        large[:2, 3:8, 5:9, 1:4],  # rows with gaps
        large[::2, ::2, ::3, ::2],
        large.flatten()[7 : 7 + 2 * 7 * 9 * 3].view(2, 7, 9, 3),
        large[:, :0, :, :3],
        large.flatten()[: 2 * 3 * 9 * 9].view(2, 3, 9, 9).permute(0, 2, 3, 1),  # planes
    ):
        compared(interpreted, one, given, False)
        compared(interpreted, one, given.permute(0, 3, 1, 2), True)
    grey = large[:, :, :, 0]
    if name == "ToTensor":  # a picture without an axis for channels
        compared(interpreted, one, grey, True)
        compared(interpreted, one, grey[1:, 3:, 5:], True)
    compared(interpreted, one, large[:, None, 2:7, 3:8, :3].expand(3, 2, 5, 5, 3), False, knows=False)
    compared(interpreted, TABLE["normalised"], large.permute(0, 3, 1, 2), True, knows=False)  # five channels


def test_what_is_too_far_apart(interpreted: Any) -> None:
    """Distances beyond 31 bits, which memory here would not hold."""
    for shape, planes in (((1, 3, 40_000, 40_000), True), ((2, 30_000, 30_000, 3), False)):
        given = torch.empty(shape, dtype=torch.uint8, device="meta")
        given = given.contiguous(memory_format=torch.channels_last) if planes else given
        out = torch.empty(shape, device="meta")
        at, _ = interpreted._layout(given, out, 3, planes)
        assert (at is None) is planes  # a place in a row is of 64 bits, and that of a plane of 32


@thinned
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("end", mostly(ENDS, "normalised", "moved later", "bfloat16", "float16 of float32"))
def test_the_floats_are_the_engines(device: Device, folder: Path, interpreted: Any, end: str, layout: str) -> None:
    """A loader's batches, without a device and with one that has the kernel."""
    ran = []

    def counted(*given: Any) -> bool:
        ran.append(given)
        return bool(interpreted.make(*given))

    device.kernels = lambda: counted
    train = stoker.ImageFolder(folder, [T.Resize((24, 40)), T.CenterCrop((24, 31)), *ENDS[end]])
    more: dict[str, Any] = {"batch_size": 4, "layout": layout, "drop_last": True}
    with DataLoader(train, **more) as here, DataLoader(train, device="cuda", device_prefetch=1, **more) as there:
        assert left(there) == [True, False]
        for _, one, other in zip(range(1), here, there, strict=False):
            device.drain()
            same(one, other)
    assert ran
    del ran[:]
    assert not notices()


def test_single_samples_and_views(device: Device, folder: Path, interpreted: Any) -> None:
    device.kernels = lambda: interpreted.make
    crop = [T.RandomResizedCrop(16), T.RandomHorizontalFlip()]
    views = T.Views([*crop, *ENDS["normalised"]], [*crop, *ENDS["float16 of float32"]], crop)
    for chain, size in ((views, 4), ([*crop, *ENDS["bfloat16"]], None)):
        train = stoker.ImageFolder(folder, chain)
        with DataLoader(train, batch_size=size) as here, DataLoader(train, device="cuda", batch_size=size) as there:
            for _, one, other in zip(range(2), here, there, strict=False):
                device.drain()
                same(one, other)


def test_after_other_steps(device: Device, folder: Path, interpreted: Any) -> None:
    """The last steps of device_transform, and what is erased after them."""
    device.kernels = lambda: interpreted.make
    steps = [T.RandomHorizontalFlip(), T.ToTensor(), T.RandomErasing(0.7, value=0.5), NORMAL]
    train = stoker.ImageFolder(folder, [T.Resize((24, 24))])
    more: dict[str, Any] = {"batch_size": 4, "seed": 3, "shuffle": True}
    whole = stoker.ImageFolder(folder, [T.Resize((24, 24)), *steps])
    with DataLoader(whole, **more) as here, DataLoader(train, device="cuda", device_transform=steps, **more) as there:
        for _, one, other in zip(range(2), here, there, strict=False):
            device.drain()
            same(one, other)


def test_less_memory_on_the_device(device: Device, interpreted: Any) -> None:
    """No float32 between bytes and halves."""
    raw = Raw(torch.zeros(8, 3, 64, 64, dtype=torch.uint8), TABLE["bfloat16 of float32"], planes=True)
    used = []
    for made in (None, interpreted.make):
        result = Result(raw)
        result.allocate(device, Floats(Port(made)))
        used.append(device.in_use)
        del result
    size = 8 * 3 * 64 * 64
    assert used == [size * 6, size * 2]


# What a GPU would run.


def compiled(one: Left, columns: int, flat: bool, capability: int, **more: Any) -> str:
    """The instructions."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    shape = (4, 64, 64, 3) if flat else (4, 3, 64, 64)
    given = torch.empty((4, 64, 64, 3), dtype=torch.uint8, device="meta")
    out = torch.empty(shape, dtype=getattr(torch, one.dtype), device="meta")
    codes, numbers = _fused.coded(one)
    assert len(numbers[0]) == columns
    seen: dict[str, Any] = {}

    class Kernel:
        def __getitem__(self, grid: Any) -> Any:
            return self

        def __call__(self, *given: Any, **keywords: Any) -> None:
            seen["given"], seen["keywords"] = given, keywords

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_triton, "kernel", Kernel())
        assert _triton.make(out, given if flat else given.permute(0, 3, 1, 2), codes, numbers, not flat)
    names = _triton.kernel.arg_names
    options = {name: seen["keywords"].pop(name) for name in _triton.OPTIONS}
    kind = {"float32": "*fp32", "float16": "*fp16", "bfloat16": "*bf16"}[one.dtype]
    types = dict.fromkeys(names[2 : len(seen["given"])], "i32")
    constants = dict.fromkeys(seen["keywords"], "constexpr")
    aligned = [
        name for name, value in zip(names, seen["given"], strict=False) if not isinstance(value, int) or value % 16 == 0
    ]
    source = ASTSource(
        _triton.kernel,
        {"given": "*u8", "out": kind, **types, **constants},
        {(names.index(name),): value for name, value in seen["keywords"].items()},
        {
            (names.index(name),): [["tt.divisibility", 16]]
            for name in aligned
            if name not in ("size", "blocks", "second")
        },
    )
    target = GPUTarget("cuda", capability, 32)
    return str(triton.compile(source, target=target, options={**options, **more}).asm["ptx"])


@pytest.mark.parametrize(
    ("name", "flat"),
    mostly(
        itertools.product(["normalised", "bfloat16", "float16 of float32"], [False, True]),
        *(("normalised", False), ("float16 of float32", True)),
    ),
)
def test_nothing_is_fused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, flat: bool) -> None:
    """Each result is rounded by itself, quotients to the nearest; stores are of 16 bytes or of two numbers."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    one = TABLE[name]
    text = compiled(one, 3, flat, 90)
    assert not re.search(r"\bfma\.", text)
    assert not re.search(r"\bdiv\.(full|approx)|\brcp\.|\.ftz\b", text)
    assert len(re.findall(r"\bdiv\.rn\.f32", text)) == text.count("div.") - text.count("div.s32")
    if name != "normalised":
        assert "div.rn.f32" in text
        assert f"cvt.rn.{'bf16' if name == 'bfloat16' else 'f16'}" in text
        assert not re.search(r"cvt\.(rz|rm|rp)", text)
    assert re.search(r"st\.global\.v4\.b32" if flat else r"st\.global\.(v2\.)?b32", text)


def test_the_option_matters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, products and sums would be fused."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    assert _triton.OPTIONS["enable_fp_fusion"] is False
    assert re.search(r"\bfma\.rn\.f32", compiled(TABLE["normalised"], 3, False, 90, enable_fp_fusion=True))


# Where it cannot run.


def test_what_imports_it() -> None:
    """Two modules, which others import where they need them: a client without Triton never does."""
    sources = {path.name: path.read_text() for path in Path(stoker.__file__).parent.rglob("*.py")}
    assert sorted(name for name, text in sources.items() if re.search(r"^\s*(import|from) triton\b", text, re.M)) == [
        "_triton.py",
        "_triton_rows.py",
    ]
    text = "\n".join(sources.values())
    for name in ("_triton", "_triton_rows"):
        assert [one.strip() for one in re.findall(rf"^\s.*import {name}$", text, re.M)] == [f"from . import {name}"]
        assert not re.findall(rf"^\S.*import {name}$", text, re.M)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the C compilers there are, which a test may change."""
    found = {"gcc"}
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if name in found else None)
    return found


def test_what_is_lacking(compiler: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert _fused.lacking() == ""
    assert _fused.kernel() is _triton.make
    compiler.clear()
    assert "no" in _fused.lacking()
    assert "C compiler" in _fused.lacking()
    compiler.add("clang")
    assert _fused.lacking() == ""
    monkeypatch.setenv("CC", "icc")
    assert "'icc' (CC)" in _fused.lacking()
    compiler.add("icc")
    assert _fused.lacking() == ""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert "TRITON_INTERPRET" in _fused.lacking()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert _fused.lacking() == "triton is not installed"
    with pytest.raises(RuntimeError, match="triton is not installed"):
        _fused.kernel()


def two_loaders(folder: Path, device: Device) -> list[str]:
    """The notices of two loaders with a device, whose batches are those of the engine."""
    train = stoker.ImageFolder(folder, [T.Resize((24, 24)), *ENDS["bfloat16 of normalised"]])
    want = [batch[0].clone() for batch in DataLoader(train, 10)]
    for _ in range(2):
        with DataLoader(train, 10, device="cuda") as loader:
            got = []
            for batch in loader:
                device.drain()
                got.append(batch[0])
        same(got, want)
    return notices()


def test_no_compiler(device: Device, folder: Path, compiler: set[str]) -> None:
    compiler.clear()
    device.kernels = _fused.kernel
    (notice,) = two_loaders(folder, device)
    assert "floats on cuda:0" in notice
    assert "neither gcc nor clang nor CC" in notice


def test_no_triton(device: Device, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "triton" else find(name, *a))
    device.kernels = _fused.kernel
    (notice,) = two_loaders(folder, device)
    assert notice.endswith("triton is not installed")


def test_the_first_compilation_fails(device: Device, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Triton's own, on a machine that has no driver of a GPU."""
    tried = []

    def real(*given: Any) -> bool:
        tried.append(1)
        return _triton.make(*given)

    device.kernels = lambda: real
    (notice,) = two_loaders(folder, device)
    assert "triton failed, with" in notice
    assert len(tried) == 1  # and not with each batch
    assert capfd.readouterr().err.count(notice) == 1


def test_an_error_of_the_device_is_no_notice(interpreted: Any) -> None:
    """What fails with the operators too."""

    def lost(*given: Any) -> bool:
        raise RuntimeError("CUDA error: unspecified launch failure")

    floats = Floats(Port(lost))
    out = torch.empty(2, 3, 4, 4)
    with pytest.raises(RuntimeError, match="size of tensor"):
        floats.make(out, None, torch.zeros(2, 3, 4, 5, dtype=torch.uint8), TABLE["normalised"], True)
    assert not notices()
    assert floats.fused
