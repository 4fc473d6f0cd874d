"""Frames of the protocol between this client and its engine.

A frame is a length (uint32, little endian: the bytes that follow) and that many bytes of JSON, one object with a
"type". testdata/wire holds golden frames that both languages test. Descriptors are sent with the first byte of the
frame that names them; the socket's reader queues them in order (``receive`` serves the sockets of workers too).
"""

from __future__ import annotations

import json
import math
import numbers
import operator
import os
import socket
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ._errors import ConfigError, in_words

PROTOCOL = 2
MAX_FRAME = 64 << 20

Message = dict[str, Any]

READ_BYTES = 1 << 16
_MOST = 16  # descriptors that come with one read

_LENGTH = struct.Struct("<I")


def receive(sock: socket.socket, flags: int = 0) -> tuple[bytes, Sequence[int]]:
    """The bytes that have arrived, none at the end, and the descriptors that came with them."""
    data, extra, _, _ = sock.recvmsg(READ_BYTES, socket.CMSG_SPACE(_MOST * 4), socket.MSG_CMSG_CLOEXEC | flags)
    found = array("i")
    for level, kind, body in extra:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(body[: len(body) - len(body) % found.itemsize])
    return data, found


class FrameError(Exception):
    """Bytes on the socket that are not a frame: the other side is not our engine, or is out of step."""


def pack(message: Mapping[str, Any]) -> bytes:
    """One frame. ConfigError if a value cannot be sent: it names the key and the value."""
    try:
        body = json.dumps(message, separators=(",", ":"), ensure_ascii=True, allow_nan=False, default=_plain).encode()
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        for key, value in _values(message, ""):
            if isinstance(value, float) and not math.isfinite(value):
                raise ConfigError(f"{in_words(key)} is {value}", hint="give a finite number") from error
            if not isinstance(value, (str, int, float, type(None))) and _plain_or_none(value) is None:
                raise ConfigError(
                    f"{in_words(key)} is {value!r:.80}, of type {type(value).__name__}",
                    hint="settings are numbers, strings, True, False, None, and lists and dicts of these",
                ) from error
        raise ConfigError("a setting cannot be sent to the engine", cause=str(error)) from error
    if len(body) > MAX_FRAME:
        raise ConfigError(
            f"the settings take {len(body) / 2**20:.0f} MiB, more than the limit of {MAX_FRAME >> 20} MiB",
            hint="give patterns instead of long lists of paths, and long lists of numbers as arrays",
        )
    return _LENGTH.pack(len(body)) + body


def _plain(value: Any) -> Any:
    """Values for which JSON has no type: NumPy's and torch's numbers, paths."""
    plain = _plain_or_none(value)
    if plain is None:
        raise TypeError(f"a {type(value).__name__}")
    return plain


def _plain_or_none(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    for of in (operator.index, _float):
        try:
            return of(value)
        except Exception:
            continue
    return None


def _float(value: Any) -> float:
    if not isinstance(value, numbers.Real):
        raise TypeError
    return float(value)


def _values(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    """The leaf values of a message, each with the name of its key in errors."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if not isinstance(name, str):
                yield f"a key of {key or 'the settings'}", name
            yield from _values(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, (list, tuple)):
        for i, inner in enumerate(value):
            yield from _values(inner, f"{key}[{i}]")
    else:
        yield key.removeprefix("spec.").removeprefix("dataset."), value


class Reader:
    """Splits a stream of bytes into messages."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> None:
        self._held += data

    def take(self) -> Message | None:
        """The next whole message, or None."""
        held = self._held
        if len(held) < _LENGTH.size:
            return None
        (size,) = _LENGTH.unpack_from(held)
        if size > MAX_FRAME:
            raise FrameError(f"a frame of {size} bytes is longer than {MAX_FRAME}")
        end = _LENGTH.size + size
        if len(held) < end:
            return None
        body = bytes(held[_LENGTH.size : end])
        del held[:end]
        try:
            message = json.loads(body)
        except ValueError as error:
            raise FrameError(f"a frame is not JSON: {error}") from error
        if not isinstance(message, dict) or not isinstance(message.get("type"), str):
            raise FrameError("a frame is not an object with a type")
        return message
