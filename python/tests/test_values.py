"""Structures to memory and back: what torch's default_collate returns is the reference."""

from __future__ import annotations

import collections
import ctypes
import functools
import gc
import mmap
import os
import random
import struct
import subprocess
import sys
import types
import weakref
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import PIL.Image
import pytest
import torch
from forms import mostly
from torch.utils.data import default_collate
from torchvision import tv_tensors

from stoker import _blob, _leaves, _values
from stoker._batch import OWNED_BYTES, Batch, DictBatch, NumpyKind, TorchKind
from stoker._values import ListBatch, Misfit, Structure, split


class Pair(NamedTuple):
    left: Any
    right: Any


class Plain(tuple[Any, ...]):
    """A tuple of a derived class: default_collate makes a list of it."""


class Rows(list[Any]):
    """A list with an attribute of its own."""

    name = "none"


class Marked(dict[str, Any]):
    """A dict with an attribute of its own."""

    mark = ""


class Text(str):
    """A str of a derived class: it stays one."""


class Derived(torch.Tensor):
    """torch.stack returns this class too."""


def root(size: int) -> Any:
    return (ctypes.c_ubyte * size).from_buffer(mmap.mmap(-1, size))


def put_together(samples: Sequence[Any], *, chunk: int = 3, kind: Any = None, slow: bool = False) -> Any:
    """The batch of samples: each worker's part is written at once, the trainer puts it together."""
    structure = Structure.decode(split(samples[0])[0].encode())
    rows = len(samples)
    offsets, at = [], 64
    for size in structure.sizes:
        offsets.append(at)
        at += -(-max(size, 0) * rows // 64) * 64
    memory = root(at + (1 << 16))
    view = memoryview(memory).cast("B")
    loose: dict[int, list[bytes]] = {}
    step = 1 if slow else chunk
    for row in range(0, rows, step):
        part = samples[row : row + step]
        try:
            written = (
                structure.write_one(view, offsets, row, part[0]) if slow else structure.write(view, offsets, row, part)
            )
        except RuntimeError:  # torch.stack(out=) takes no tensor that requires a gradient
            written = [pair for i in range(len(part)) for pair in structure.write_one(view, offsets, row + i, part[i])]
        for column, values in written:
            loose.setdefault(column, []).extend(values)
    columns = {}
    for i, offset in enumerate(offsets):
        columns[str(i)] = {"off": offset}
        if (values := loose.get(i)) is not None:
            ends = struct.pack(f"<{rows + 1}q", *np.cumsum([0, *map(len, values)]))
            columns[str(i)] = {"off": at, "at": at + len(ends)}
            data = ends + b"".join(values)
            view[at : at + len(data)] = data
            at += -(-len(data) // 64) * 64
    text = b64encode(structure.encode()).decode()
    return _values.Assembler(kind or TorchKind()).rows(text, columns, rows, memory)


def same(found: Any, expected: Any, path: str = "batch") -> None:
    """Equal, in types too."""
    assert type(found) is type(expected), (path, type(found), type(expected))
    if isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype, path
        assert found.shape == expected.shape, path
        assert torch.equal(found.nan_to_num(7), expected.nan_to_num(7)), path
    elif isinstance(expected, collections.abc.Mapping):
        assert list(found) == list(expected), path
        for key in expected:
            same(found[key], expected[key], f"{path}[{key!r}]")
    elif isinstance(expected, (str, bytes)):
        assert found == expected, path
    elif isinstance(expected, collections.abc.Sequence):
        assert len(found) == len(expected), path
        for i, (a, b) in enumerate(zip(found, expected, strict=True)):
            same(a, b, f"{path}[{i}]")
    else:
        assert found == expected, path
    if isinstance(expected, (Marked, Rows)):
        assert vars(found) == vars(expected), path


# Generated structures.

TENSORS = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.complex128,
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
]
ARRAYS = "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64 complex64 complex128".split()


def leaf(draw: random.Random) -> Any:
    """A function that makes values of one leaf."""
    shape = tuple(draw.randint(0 if draw.random() < 0.1 else 1, 4) for _ in range(draw.randint(0, 3)))
    choice = draw.randrange(12)
    if choice < 3:
        dtype = draw.choice(TENSORS)
        if choice == 2 and len(shape) > 1:
            return lambda: torch.tensor(numbers(draw, shape)).to(dtype).transpose(0, 1)
        return lambda: torch.tensor(numbers(draw, shape)).to(dtype)
    if choice < 5:
        name = draw.choice(ARRAYS)
        if choice == 4 and shape:
            return lambda: np.asfortranarray(numbers(draw, shape).astype(name))[::1]
        return lambda: numbers(draw, shape).astype(name)
    if choice == 5:
        scalar = np.dtype(draw.choice([name for name in ARRAYS if name != "uint64"])).type  # torch refuses it
        return lambda: scalar(draw.randint(0, 100))
    return [
        lambda: draw.randint(-(1 << 62), 1 << 62),
        draw.random,
        lambda: draw.random() < 0.5,
        lambda: "".join(draw.choices("aé漢\U0001f600\n", k=draw.randint(0, 6))),
        lambda: draw.randbytes(draw.randint(0, 9)),
        lambda: Text(f"text {draw.random()}"),
    ][choice - 6]


def numbers(draw: random.Random, shape: tuple[int, ...]) -> Any:
    return np.array([draw.randint(0, 120) for _ in range(int(np.prod(shape)))], np.float64).reshape(shape)


def tree(draw: random.Random, depth: int) -> Any:
    """A function that makes samples of one structure."""
    if depth == 0 or draw.random() < 0.25:
        return leaf(draw)
    parts = [tree(draw, depth - 1) for _ in range(draw.randint(0 if draw.random() < 0.2 else 1, 4))]
    keys = draw.sample(["a", "b", 3, ("t", 1), None, "x y"], len(parts))

    def mapping() -> dict[Any, Any]:
        return {key: part() for key, part in zip(keys, parts, strict=True)}

    def marked() -> Marked:
        found = Marked(mapping())
        found.mark = "m"
        return found

    def rows() -> Rows:
        found = Rows(part() for part in parts)
        found.name = "n"
        return found

    makes: list[Any] = [
        mapping,
        mapping,
        marked,
        lambda: collections.OrderedDict(mapping()),
        lambda: collections.defaultdict(int, mapping()),
        lambda: collections.UserDict(mapping()),
        lambda: types.MappingProxyType(mapping()),
        lambda: tuple(part() for part in parts),
        lambda: tuple(part() for part in parts),
        lambda: [part() for part in parts],
        lambda: Plain(part() for part in parts),
        rows,
        lambda: collections.deque(part() for part in parts),
        lambda: collections.UserList(part() for part in parts),
    ]
    if len(parts) == 2:
        makes.append(lambda: Pair(*(part() for part in parts)))
    return draw.choice(makes)


@pytest.mark.parametrize("seed", mostly(range(200), *range(60)))
def test_a_generated_structure_is_collated_as_by_torch(seed: int) -> None:
    draw = random.Random(seed)
    make = tree(draw, draw.randint(0, 3))
    samples = [make() for _ in range(draw.randint(1, 7))]
    expected = default_collate(samples)
    same(put_together(samples, chunk=draw.randint(1, 7)), expected)
    same(put_together(samples, slow=True), expected)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2])
def test_rare_dtypes(dtype: torch.dtype) -> None:
    samples = [torch.arange(6).to(torch.float32).to(dtype) for _ in range(3)]
    found = put_together(samples)
    assert found.dtype == dtype
    assert torch.equal(found.view(torch.uint8), torch.stack([sample.view(torch.uint8) for sample in samples]))


def test_special_tensors() -> None:
    image = tv_tensors.Image(torch.rand(3, 4, 5))
    boxes = tv_tensors.BoundingBoxes([[1.0, 2, 3, 4]], format="XYXY", canvas_size=(9, 9))
    for value in (
        image,
        boxes,
        torch.rand(2, 3).as_subclass(Derived),
        torch.nn.Parameter(torch.rand(4)),
        torch.rand(3, requires_grad=True),
        torch.view_as_complex(torch.rand(3, 2)).conj(),
        torch.view_as_complex(torch.rand(3, 2)).conj().imag,
        torch.rand(5, 6).t()[1:3],
        torch.rand(1).expand(4, 4),
        torch.rand(()),
    ):
        samples = [(value, 1), (value, 2)]
        found, expected = put_together(samples), default_collate(samples)
        same(found, [expected[0].detach(), expected[1]])


def test_special_arrays(tmp_path: Any) -> None:
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=(3, 4))
    mapped[:] = 5
    masked = np.ma.masked_array(np.arange(4.0), [True, False, True, False])
    read_only = np.arange(5)
    read_only.flags.writeable = False
    for value in (mapped, masked, read_only, np.zeros((0, 3)), np.array(7), np.broadcast_to(np.float32(3), (4, 4))):
        samples = [value, value]
        same(put_together(samples), torch.stack([torch.tensor(np.asarray(value))] * 2))
    assert put_together([np.arange(3)[::-1]]).tolist() == [[2, 1, 0]]


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([1, True], torch.tensor([1, 1])),
        ([0.5, 2], torch.tensor([0.5, 2.0], dtype=torch.float64)),
        ([1, np.int64(2)], torch.tensor([1, 2])),
        ([np.int64(2), 1], torch.tensor([2, 1])),
        ([{"a": 1, "b": 2}, {"b": 3, "a": 4}], {"a": torch.tensor([1, 4]), "b": torch.tensor([2, 3])}),
        ([{"a": 1}, collections.OrderedDict(a=2)], {"a": torch.tensor([1, 2])}),
        ([(1, 2), [3, 4]], [torch.tensor([1, 3]), torch.tensor([2, 4])]),
        ([np.arange(2), torch.arange(2)], torch.tensor([[0, 1], [0, 1]])),
    ],
)
def test_what_fits_though_its_type_differs(samples: list[Any], expected: Any) -> None:
    for way in (False, True):
        structure, _ = split(samples[0])
        view = memoryview(bytearray(1 << 10))
        offsets = [64 * (i + 1) for i in range(len(structure.sizes))]
        write: Any = structure.write_one if way else structure.write
        for row, sample in enumerate(samples):
            try:
                write(view, offsets, row, sample if way else [sample])
            except _leaves.Unlike:
                structure.write_one(view, offsets, row, sample)
        columns = {str(i): {"off": offset} for i, offset in enumerate(offsets)}
        text = b64encode(structure.encode()).decode()
        same(_values.Assembler(TorchKind()).rows(text, columns, len(samples), view.obj), expected)


# Samples that do not fit.


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (torch.zeros(3), torch.zeros(4), "it is a float32 tensor of shape (4,), and a float32 tensor of shape (3,) in"),
        ((1, torch.zeros(3)), (1, torch.zeros(3, dtype=torch.int32)), "its field [1] is a int32 tensor"),
        ({"x": np.zeros(2)}, {"x": np.zeros((2, 1))}, "its field ['x'] is a float64 array of shape (2, 1), and"),
        ({"x": [1, 2]}, {"x": [1, 2, 3]}, "its field ['x'] has 3 values, and 2 in sample 40"),
        ({"x": 1}, {"x": 1, "y": 2}, "it has the key 'y' that sample 40 lacks"),
        ({"x": {"y": 1}}, {"x": {}}, "its field ['x'] lacks the key 'y' that sample 40 has"),
        ((1, 2), 3, "it is an int, and a sequence of 2 values in sample 40"),
        ({"x": 1}, [1], "it is a sequence of 1 value, and a mapping with the keys 'x' in sample 40"),
        (1, 1.5, "it is a float, and an int in sample 40"),
        (True, 2, "it is an int, and a bool in sample 40"),
        (("a",), (b"a",), "its field [0] is bytes, and a str in sample 40"),
        (np.float32(1), np.float64(1), "it is a NumPy float64, and a NumPy float32 in sample 40"),
        (torch.zeros(2, 0), torch.zeros(3, 0), "it is a float32 tensor of shape (3, 0)"),
        (np.zeros((2, 3)), np.zeros((3, 2)), "it is a float64 array of shape (3, 2)"),
        ((1, "a"), (1, None), "its field [1] is None: default_collate: batch must contain tensors"),
    ],
)
def test_a_misfit_names_the_field_and_the_sample(first: Any, second: Any, words: str) -> None:
    structure, _ = split(first, 40)
    view = memoryview(bytearray(1 << 12))
    offsets = [64 * (i + 1) for i in range(len(structure.sizes))]
    with pytest.raises(Exception):  # noqa: B017
        structure.write(view, offsets, 0, [first, second])
    with pytest.raises(Misfit) as caught:
        structure.write_one(view, offsets, 0, second)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        object(),
        1j,
        PIL.Image.new("RGB", (4, 4)),
        np.array(["a"]),
        np.array([object()]),
        np.datetime64("2020-01-01"),
        np.zeros(2, ">f4"),
        1 << 70,
        torch.eye(3).to_sparse(),
        {1, 2},
        Ellipsis,
    ],
)
def test_what_torch_refuses_is_refused_with_its_reason(value: Any) -> None:
    with pytest.raises(Exception) as theirs:
        default_collate([value])
    with pytest.raises(Misfit) as ours:
        split({"x": [value]})
    assert str(theirs.value) in str(ours.value)
    assert "its field ['x'][0]" in str(ours.value)
    assert ours.value.hint


def test_a_tensor_on_another_device() -> None:
    with pytest.raises(Misfit, match="a tensor on meta") as caught:
        split([torch.zeros(2, device="meta")])
    assert "num_workers=0" in caught.value.hint


def test_a_class_that_the_trainer_cannot_find() -> None:
    class Local(NamedTuple):
        x: int

    with pytest.raises(Misfit, match="Local"):
        split(Local(1))[0].encode()


# Batches.


def message(columns: list[dict[str, Any]], rows: int, end: int, structure: bytes) -> dict[str, Any]:
    data = [*columns, {"name": "__ids__", "off": end}, {"name": "__valid__", "off": end + 8 * rows}]
    text = b64encode(structure).decode()
    return {"type": "batch", "rows": rows, "epoch": 2, "step": 9, "data": data, "structure": text}


def make(samples: list[Any], assembler: Any = None) -> tuple[Any, dict[str, Any], Any]:
    structure, _ = split(samples[0])
    rows = len(samples)
    memory = root(sum(structure.sizes) * rows + 8192)
    columns, offsets, at = [], [], 0
    for i, size in enumerate(structure.sizes):
        columns.append({"name": str(i), "off": at, "shape": [size]})
        offsets.append(at)
        at += -(-size * rows // 64) * 64
    structure.write(memoryview(memory).cast("B"), offsets, 0, samples)
    struct.pack_into(f"<{rows}q", memory, at, *range(10, 10 + rows))
    memory[at + 8 * rows] = 1
    assembler = assembler or _values.Assembler(TorchKind())
    batch, facts = assembler.make(message(columns, rows, at, structure.encode()), memory)
    return batch, facts, memory


def test_a_batch_has_its_facts() -> None:
    for sample, kind in (((1, 2), ListBatch), ({"a": 1}, DictBatch)):
        batch, facts, _ = make([sample, sample])
        assert type(batch) is kind
        assert batch.ids.tolist() == [10, 11]
        assert batch.valid.tolist() == [True, False]
        assert (batch.epoch, batch.step, batch.bad) == (2, 9, [])
        assert facts["step"] == 9
    batch, facts, _ = make([Pair(1, 2)])
    assert type(batch) is Pair
    assert facts["ids"].tolist() == [10]


def test_large_columns_are_views_and_keep_the_slot() -> None:
    batch, _, memory = make([(torch.rand(OWNED_BYTES), i) for i in range(2)])
    begin, end = ctypes.addressof(memory), ctypes.addressof(memory) + len(memory)
    assert begin <= batch[0].data_ptr() < end
    assert not begin <= batch[1].data_ptr() < end
    alive = weakref.ref(memory)
    del memory
    part = batch[0][1, :5]
    labels = batch[1]
    del batch
    gc.collect()
    assert alive() is not None
    del part
    gc.collect()
    assert alive() is None
    assert labels.tolist() == [0, 1]


def test_numpy_batches() -> None:
    samples: list[Any] = [{"x": torch.rand(3), "n": i, "t": "s"} for i in range(4)]
    found = put_together(samples, kind=NumpyKind())
    assert found["x"].dtype == np.float32
    assert np.array_equal(found["x"], np.stack([sample["x"].numpy() for sample in samples]))
    assert found["n"].tolist() == [0, 1, 2, 3]
    assert found["t"] == ["s"] * 4


def test_pytrees_see_batches() -> None:
    _values.register()
    from torch.utils import _pytree

    for batch in (Batch((torch.ones(2), 3)), ListBatch([torch.ones(2), 3]), DictBatch(a=torch.ones(2), b=3)):
        doubled = _pytree.tree_map(lambda value: value * 2, batch)
        assert type(doubled) is type(batch)
        assert (list(doubled.values()) if isinstance(doubled, dict) else doubled)[1] == 6


JAX = """
import jax, stoker
from stoker import _values
from stoker._batch import Batch, DictBatch
_values.register()
for batch in (Batch((1, 3)), _values.ListBatch([1, 3]), DictBatch(a=1, b=3)):
    doubled = jax.tree.map(lambda value: value * 2, batch)
    assert type(doubled) is type(batch)
    assert (list(doubled.values()) if isinstance(doubled, dict) else list(doubled)) == [2, 6]
"""


def test_jax_sees_batches() -> None:
    # In a process of its own: JAX starts threads, and other tests fork.
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", JAX], check=True, env=environment)


def test_a_changed_default_collate_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils.data._utils.collate import default_collate_fn_map

    assert not _values.collates_otherwise()
    monkeypatch.setitem(default_collate_fn_map, set, lambda batch, *, collate_fn_map: batch)
    assert _values.collates_otherwise()


# Whole batches.


def round_trip(value: Any) -> tuple[Any, Any]:
    blob = _blob.Blob(value)
    memory = root(blob.size + 128)
    blob.write(memoryview(memory).cast("B"), 64)
    return _blob.load(memory, 64, blob.size), memory


def test_a_whole_batch_comes_back() -> None:
    picture = PIL.Image.effect_noise((20, 10), 50).convert("RGB")
    picture.info["dpi"] = 72
    palette = picture.quantize(8)
    value = {
        "every": [torch.tensor([0, 1, 2]).to(dtype) for dtype in TENSORS],
        "strided": torch.rand(6, 8).t()[1:5, ::2],
        "expanded": torch.rand(1).expand(3, 3),
        "empty": torch.empty(0, 3),
        "none": [None, 1, "s", b"b", 2.5, 1j, Text("t")],
        "array": [np.arange(6).reshape(2, 3), np.arange(6).reshape(2, 3).T, np.arange(20)[::3], np.array("s")],
        "objects": np.array([1, "a", None], object),
        "picture": [picture, palette],
        "sparse": torch.eye(4).to_sparse(),
        "csr": torch.eye(4).to_sparse_csr(),
        "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "jagged": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        "boxes": tv_tensors.BoundingBoxes([[1.0, 2, 3, 4]], format="XYXY", canvas_size=(9, 9)),
        "derived": torch.rand(2).as_subclass(Derived),
        "parameter": torch.nn.Parameter(torch.rand(4)),
        "proxy": types.MappingProxyType({"a": 1}),
        "conj": torch.view_as_complex(torch.rand(3, 2)).conj(),
    }
    found, _ = round_trip(value)
    assert list(found) == list(value)
    for key in ("every", "strided", "expanded", "empty", "derived", "conj"):
        same(found[key], value[key], key)
    assert found["none"] == value["none"]
    for a, b in zip(found["array"], value["array"], strict=True):
        assert a.dtype == b.dtype
        assert np.array_equal(a, b)
    assert found["objects"].tolist() == [1, "a", None]
    for a, b in zip(found["picture"], value["picture"], strict=True):
        assert (a.mode, a.size, a.info, a.tobytes(), a.getpalette()) == (
            b.mode,
            b.size,
            b.info,
            b.tobytes(),
            b.getpalette(),
        )
        a.putpixel((0, 0), 3 if a.mode == "P" else (1, 2, 3))
    assert found["sparse"].layout is torch.sparse_coo
    assert torch.equal(found["sparse"].to_dense(), torch.eye(4))
    assert torch.equal(found["csr"].to_dense(), torch.eye(4))
    for key in ("nested", "jagged"):
        assert found[key].is_nested
        assert [row.tolist() for row in found[key].unbind()] == [[1, 1], [1, 1, 1]]
    assert type(found["boxes"]) is tv_tensors.BoundingBoxes
    assert found["boxes"].canvas_size == (9, 9)
    assert found["boxes"].format == value["boxes"].format
    assert type(found["parameter"]) is torch.nn.Parameter
    assert found["parameter"].requires_grad
    assert found["proxy"] == {"a": 1}
    assert type(found["proxy"]) is types.MappingProxyType


def test_large_parts_of_a_whole_batch_are_views_and_keep_the_slot() -> None:
    big = torch.rand(OWNED_BYTES)
    (tensor, view, array, small), memory = round_trip([big, big[5:], np.zeros(OWNED_BYTES), torch.arange(3)])
    begin, end = ctypes.addressof(memory), ctypes.addressof(memory) + len(memory)
    assert begin <= tensor.data_ptr() < end
    assert begin <= array.ctypes.data < end
    assert tensor.data_ptr() % 64 == begin % 64
    assert view.data_ptr() == tensor.data_ptr() + 20  # they share their memory
    assert not begin <= small.data_ptr() < end
    assert array.flags.writeable
    for kept in (tensor, array):
        kept[0] = 1
    alive = weakref.ref(memory)
    del memory
    tensor = tensor[7:9]
    del view, array
    gc.collect()
    assert alive() is not None
    del tensor, kept
    gc.collect()
    assert alive() is None
    assert small.tolist() == [0, 1, 2]


def test_bytes_of_arrays_are_not_pickled() -> None:
    picture = PIL.Image.new("L", (1000, 1000))
    for value in (torch.zeros(1 << 20), np.zeros((1000, 1000))[:, ::2], np.zeros((1000, 1000)).T, picture):
        blob = _blob.Blob([value])
        assert len(blob._pickle) < 1000


def test_a_small_part_of_a_large_tensor_travels_alone() -> None:
    big = torch.rand(1 << 20)
    assert _blob.Blob([big[:100]]).size < 4096
    found, _ = round_trip([big[3:50], big[40:100]])
    assert torch.equal(found[0], big[3:50])
    assert torch.equal(found[1], big[40:100])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": [1, (n for n in [1])]}, "the batch['a'][1] cannot be passed to the trainer: cannot pickle 'generator'"),
        ([1, lambda: 0], "the batch[1]"),
        (types.SimpleNamespace(inner=types.SimpleNamespace(file=open)), None),
        (types.SimpleNamespace(inner=[types.SimpleNamespace(lock=mmap.mmap(-1, 1))]), "the batch.inner[0].lock"),
        (functools.partial(print, mmap.mmap(-1, 1)), "the batch.args[0]"),
    ],
)
def test_what_cannot_be_pickled_is_named(value: Any, words: str | None) -> None:
    if words is None:
        _blob.Blob(value)
        return
    with pytest.raises(_blob.Unsuitable) as caught:
        _blob.Blob(value)
    assert words in str(caught.value)
    assert caught.value.hint


def test_a_gradient_cannot_be_passed_on() -> None:
    with pytest.raises(_blob.Unsuitable, match="gradients") as caught:
        _blob.Blob([torch.rand(3, requires_grad=True) * 2])
    assert "detach" in caught.value.hint


class Odd(Exception):
    """Cannot be unpickled: it wants two arguments and keeps one."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(a)


def test_exceptions_travel_if_they_come_back() -> None:
    error = _blob.exception(_blob.exception_text(KeyError("x", 3)))
    assert type(error) is KeyError
    assert error.args == ("x", 3)
    assert _blob.exception_text(Odd(1, 2)) == ""
    assert _blob.exception("") is None
    assert _blob.exception("!!") is None
