"""Frames of the protocol between this client and its engine.

A frame is a length (uint32, little endian: the bytes that follow) and that many bytes of JSON, one object with a
"type". testdata/wire holds golden frames that both languages test. Descriptors ride along with the first byte of the
frame that names them; the socket's reader keeps them in a queue, in order.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

from ._errors import ConfigError

PROTOCOL = 1
MAX_FRAME = 64 << 20

Message = dict[str, Any]

_LENGTH = struct.Struct("<I")


class FrameError(Exception):
    """Bytes on the socket that are no frame: the other side is not our engine, or is out of step."""


def pack(message: Mapping[str, Any]) -> bytes:
    """One frame."""
    try:
        body = json.dumps(message, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")
    except ValueError as error:
        raise ConfigError(
            "a number among the settings is NaN or infinite", hint="look at weights, schedules and transforms"
        ) from error
    if len(body) > MAX_FRAME:
        raise FrameError(f"a frame of {len(body)} bytes is longer than {MAX_FRAME}")
    return _LENGTH.pack(len(body)) + body


class Reader:
    """Cuts a stream of bytes into messages."""

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
