"""Batches that a user's ``collate_fn`` made: any objects, to the memory of a slot and back without a copy.

    offset  size
    0       8     bytes of what follows up to the end of the pickle
    8       4     n, the number of buffers
    12      8 n   bytes of each buffer
            ...   pickle, protocol 5
            ...   the buffers, each at a multiple of 64 from the beginning

The bytes of tensors, arrays and pictures are buffers and are not pickled. Tensors that share their storage share it
afterwards too. The trainer's objects are views of the slot, and each keeps it leased; buffers below OWNED_BYTES are
copied, so that keeping all labels does not keep all images.
"""

from __future__ import annotations

import copyreg
import ctypes
import io
import pickle
import struct
import sys
from array import array
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ._batch import OWNED_BYTES

ALIGN = 64
_HEAD = struct.Struct("<QI")
_WHOLE_STORAGE = 1 << 12  # storages up to this many bytes travel whole, however little of them is used


class Unsuitable(TypeError):
    """A batch that cannot be passed to the trainer. ``hint`` says what to try."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint


class Blob:
    """A batch that is ready to be written: ``size`` bytes."""

    def __init__(self, value: Any, name: str = "the batch") -> None:
        self._buffers: list[pickle.PickleBuffer] = []
        out = io.BytesIO()
        pickler = _Pickler(out, self._buffers)
        try:
            pickler.dump(value)
        except Unsuitable:
            raise
        except Exception as error:
            where, reason = unpicklable(value, name, _dumps) or (name, error)
            raise Unsuitable(
                f"{where} cannot be passed to the trainer: {reason}", "return arrays, tensors, numbers, strings"
            ) from error
        self._kept = pickler.kept
        self._pickle = out.getbuffer()
        self._raw = [buffer.raw() for buffer in self._buffers]
        n = len(self._raw)
        self._head = _HEAD.pack(4 + 8 * n + len(self._pickle), n) + struct.pack(
            f"<{n}Q", *(raw.nbytes for raw in self._raw)
        )
        at = len(self._head) + len(self._pickle)
        self._offsets = []
        for raw in self._raw:
            at = -(-at // ALIGN) * ALIGN
            self._offsets.append(at)
            at += raw.nbytes
        self.size = at

    def write(self, memory: memoryview, at: int) -> None:
        """Writes all of it from byte ``at`` on."""
        begin = at + len(self._head)
        memory[at:begin] = self._head
        memory[begin : begin + len(self._pickle)] = self._pickle
        for raw, offset in zip(self._raw, self._offsets, strict=True):
            memory[at + offset : at + offset + raw.nbytes] = raw


def load(root: Any, at: int, size: int) -> Any:
    """The batch in these bytes of a slot; views of it keep ``root`` alive."""
    memory = memoryview(root).cast("B")[at : at + size]
    length, n = _HEAD.unpack_from(memory)
    sizes = struct.unpack_from(f"<{n}Q", memory, _HEAD.size)
    begin, end = _HEAD.size + 8 * n, 8 + length
    offset = end
    buffers: list[Any] = []
    for bytes_ in sizes:
        offset = -(-offset // ALIGN) * ALIGN
        part = memory[offset : offset + bytes_]
        buffers.append(part if bytes_ >= OWNED_BYTES else bytearray(part))
        offset += bytes_
    return pickle.loads(memory[begin:end], buffers=buffers)


class _Pickler(pickle.Pickler):
    def __init__(self, out: Any, buffers: list[pickle.PickleBuffer]) -> None:
        super().__init__(out, 5, buffer_callback=buffers.append)
        self.kept: list[Any] = []  # memory that buffers refer to
        self._storages: dict[int, Storage] = {}
        self._torch = sys.modules.get("torch")
        self._numpy = sys.modules.get("numpy")
        pil = sys.modules.get("PIL.Image")
        self._picture = None if pil is None else pil.Image

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        torch, np = self._torch, self._numpy
        if torch is not None and isinstance(value, torch.Tensor):
            return self._tensor(torch, value)
        if np is not None and kind is np.ndarray:
            if not value.dtype.hasobject and not (value.flags.c_contiguous or value.flags.f_contiguous):
                value = np.ascontiguousarray(value)  # NumPy would pickle its bytes
                self.kept.append(value)
                return value.__reduce_ex__(5)
        elif kind is self._picture and kind is not None:
            state = list(value.__getstate__())
            if isinstance(state[-1], bytes):
                state[-1] = pickle.PickleBuffer(state[-1])
                return _picture, (state,)
        elif kind is MappingProxyType:
            return _proxy, (dict(value),)
        return NotImplemented

    def _tensor(self, torch: Any, value: Any) -> Any:
        if value.device.type not in ("cpu", "meta"):
            raise Unsuitable(
                f"the batch holds a tensor on {value.device}, which a worker cannot pass on",
                "copy the batch to the device in the training loop, or pass num_workers=0",
            )
        dense = value.layout is torch.strided and not value.is_nested and not value.is_quantized
        if value.requires_grad and not value.is_leaf:
            raise Unsuitable(
                "the batch holds a tensor that is the result of a computation with gradients",
                "call detach() on it, or compute it under torch.no_grad()",
            )
        if not dense or value.device.type == "meta":
            return NotImplemented
        kind = type(value)
        if kind is not torch.Tensor and (
            kind.__reduce_ex__ is not torch.Tensor.__reduce_ex__
            or hasattr(kind, "__torch_dispatch__")
            and kind is not torch.nn.Parameter
            and kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
        ):
            return NotImplemented
        state = torch._utils._get_obj_state(value)
        grad = value.requires_grad
        with torch._C.DisableTorchFunctionSubclass():
            plain = value.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg()
            args = (*self._stored(torch, plain), grad, None if kind is torch.Tensor else kind, state or None)
        return _tensor, args

    def _stored(self, torch: Any, plain: Any) -> tuple[Any, ...]:
        storage = plain.untyped_storage()
        key = storage.data_ptr()
        if key not in self._storages or not key:
            if storage.nbytes() > max(_WHOLE_STORAGE, 2 * plain.nbytes):
                plain = plain.contiguous() if not plain.is_contiguous() else plain.clone()
                storage = plain.untyped_storage()
                key = storage.data_ptr()
            if not plain.nbytes:
                return None, _name(plain), 0, tuple(plain.shape), None
            self.kept.append(storage)
            self._storages[key] = Storage(_memory(key, storage.nbytes()))
        return self._storages[key], _name(plain), plain.storage_offset(), tuple(plain.shape), plain.stride()


class Storage:
    """The memory of one or several tensors; one object, so that pickle sends it once."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self.flat: Any = None  # torch's storage over it

    def __reduce__(self) -> tuple[Any, ...]:
        return Storage, (pickle.PickleBuffer(self.memory),)


def _memory(address: int, size: int) -> Any:
    return (ctypes.c_ubyte * size).from_address(address)


def _name(plain: Any) -> str:
    return str(plain.dtype).removeprefix("torch.")


def _tensor(
    storage: Storage | None, dtype: str, offset: int, shape: Any, stride: Any, grad: bool, kind: Any, state: Any
) -> Any:
    import torch

    dtype_ = getattr(torch, dtype)
    if storage is None:
        value = torch.empty(shape, dtype=dtype_)
    else:
        if storage.flat is None:
            storage.flat = torch.frombuffer(storage.memory, dtype=torch.uint8).untyped_storage()
        value = torch.empty(0, dtype=dtype_)
        value.set_(storage.flat, offset, shape, stride)
    if kind is not None:
        value = value.as_subclass(kind)
    if grad:
        value.requires_grad_(True)
    if state is not None:
        torch._utils._set_obj_state(value, state)  # type: ignore[no-untyped-call]
    return value


def _picture(state: list[Any]) -> Any:
    from PIL import Image

    image = Image.Image()
    image.__setstate__([*state[:-1], bytes(state[-1])])
    return image


def _proxy(values: dict[Any, Any]) -> Any:
    return MappingProxyType(values)  # pickle does not find this class by its name


# What cannot be pickled.


def _dumps(value: Any) -> None:
    _Pickler(io.BytesIO(), []).dump(value)


def unpicklable(
    value: Any, name: str, dumps: Callable[[Any], Any] = pickle.dumps, _seen: set[int] | None = None
) -> tuple[str, Exception] | None:
    """The innermost part of a value that ``dumps`` refuses, as an expression that begins with ``name``, and the error;
    None if it accepts all of it."""
    try:
        dumps(value)
        return None
    except Exception as error:
        found = error
    seen = set() if _seen is None else _seen
    seen.add(id(value))
    for inner, path in _parts(value, name):
        if id(inner) not in seen and (deeper := unpicklable(inner, path, dumps, seen)):
            return deeper
    return name, found


def _parts(value: Any, name: str) -> list[tuple[Any, str]]:
    if isinstance(value, Mapping):
        return [(inner, f"{name}[{key!r}]") for key, inner in list(value.items())[:1000]]
    if isinstance(value, (list, tuple)):
        return [(inner, f"{name}[{number}]") for number, inner in enumerate(value[:1000])]
    if isinstance(value, (set, frozenset)):
        return [(inner, f"a value of {name}") for inner in list(value)[:1000]]
    if isinstance(value, (str, bytes, type, array)):
        return []
    if (bound := getattr(value, "__self__", None)) is not None and callable(value):
        return [(bound, f"{name}.__self__")]
    if (func := getattr(value, "func", None)) is not None and hasattr(value, "keywords"):  # functools.partial
        return [(func, f"{name}.func"), (value.args, f"{name}.args"), (value.keywords, f"{name}.keywords")]
    found = [(inner, f"{name}.{key}") for key, inner in getattr(value, "__dict__", {}).items()]
    for kind in type(value).__mro__:
        for key in copyreg._slotnames(kind) if "__slots__" in vars(kind) else ():  # type: ignore[attr-defined]
            if hasattr(value, key):
                found.append((getattr(value, key), f"{name}.{key}"))
    return found


# Exceptions.


def exception_text(error: BaseException) -> str:
    """An exception as base64 of its pickle, "" if it cannot be pickled or would come back as something else."""
    try:
        data = pickle.dumps(error, 5)
        back = pickle.loads(data)
    except Exception:
        return ""
    return b64encode(data).decode() if type(back) is type(error) and str(back) == str(error) else ""


def exception(text: str) -> BaseException | None:
    """The exception in what exception_text gave; None if it cannot be made here."""
    try:
        found = pickle.loads(b64decode(text)) if text else None
    except Exception:
        return None
    return found if isinstance(found, BaseException) else None
