"""Tar shards written sample by sample, with the name and arguments of WebDataset's writer.

ShardWriter   chooses the shard; a shard gets its name when it is complete and on disk
_Tar          one shard: samples as members
encode_field  encodes a value as the bytes of a member, by the extension of its field
"""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import json
import lzma
import operator
import os
import secrets
import tarfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, BinaryIO

from . import _notice
from ._errors import ConfigError, Problems, ResourceError, SourceError, StokerError, many, whole
from ._numbers import scalar
from ._suffixes import suffix, written_as

Encoder = Callable[[Any], Any]

_IMAGES = {  # as Pillow calls them
    **dict.fromkeys("jpg jpeg img image".split(), "JPEG"),
    **dict.fromkeys("tif tiff".split(), "TIFF"),
    **dict.fromkeys("pbm pgm ppm".split(), "PPM"),
    "png": "PNG",
}
_COMPRESS = {"gz": "gz", "tgz": "gz", "bz2": "bz2", "xz": "xz"}
_QUALITY = 100  # of JPEG and TIFF, as WebDataset writes them


class ShardWriter:
    """Writes samples into tar shards, as ``webdataset.ShardWriter`` does.

    >>> with stoker.ShardWriter("train-%06d.tar", maxcount=1000) as sink:
    ...     for i, (image, label) in enumerate(samples):
    ...         sink.write({"__key__": f"{i:06d}", "jpg": image, "cls": label})

    pattern      the name of shards, with %d or %06d for their number
    maxcount     samples per shard
    maxsize      bytes of the fields in a shard; the sample that exceeds them is its last
    post         called with the name of every finished shard
    start_shard  number of the first shard
    verbose      0 does not print the shards as they are started
    opener       called with a shard's name; returns a stream to write to, which is closed afterwards
    encoder      True: values are encoded by the extension of their fields, see ``write``; False: all values are bytes;
                 a dict of extensions and functions, in addition to True's; or a function of the whole sample
    compress     True or "gz", "bz2", "xz"; None: by the end of the pattern. For "zstd" and "lz4" use stoker.pack
    user, group, mode, mtime   of the members; mtime is 0 by default, so that equal samples give equal bytes
    keep_meta    also write fields whose names begin with _, except for __key__
    format       of the tar headers, a name or a constant of the module tarfile

    While it is written, a shard has another name (.NAME.XXXX.tmp beside it). When it is complete and on disk, it gets
    its own name and replaces any file of that name. If the ``with`` block is left by an exception, the unfinished shard
    is removed, and the finished ones stay. Shards without samples are not written.

    Raises ConfigError: a sample that would not be read back unchanged; ResourceError: the disk is full; SourceError.
    """

    def __init__(
        self,
        pattern: str | os.PathLike[str],
        maxcount: int = 100000,
        maxsize: float = 3e9,
        post: Callable[[str], Any] | None = None,
        start_shard: int = 0,
        verbose: int = 1,
        opener: Callable[[str], Any] | None = None,
        *,
        encoder: Any = True,
        compress: bool | str | None = None,
        user: str = "",
        group: str = "",
        mode: int = 0o444,
        keep_meta: bool = False,
        mtime: float | None = None,
        format: Any = None,
    ) -> None:
        problems = Problems("ShardWriter")
        maxcount, maxsize, start_shard = scalar(maxcount), scalar(maxsize), scalar(start_shard)
        self.pattern = os.fspath(pattern)
        self.maxcount = maxcount
        self.maxsize = maxsize
        self.post = post
        self.shard = start_shard
        self.verbose = verbose
        self.opener = opener
        self.fname: str | None = None
        self.count = 0  # samples in this shard
        self.size = 0  # bytes of their fields
        self.total = 0  # samples in all shards
        if not whole(maxcount) or maxcount < 1:
            problems.add(f"maxcount is {maxcount!r}", "give a number of samples")
        if isinstance(maxsize, bool) or not isinstance(maxsize, (int, float)) or not maxsize > 0:
            problems.add(f"maxsize is {maxsize!r}", "give a number of bytes")
        if not whole(start_shard) or start_shard < 0:
            problems.add(f"start_shard is {start_shard!r}", "give a number, 0 or more")
        _check_pattern(self.pattern, opener is None, problems)
        self._compress = _compression(compress, self.pattern, problems)
        self._encode = _encoder(encoder, problems)
        headers = getattr(tarfile, format, None) if isinstance(format, str) else format
        if format is not None and headers not in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            problems.add(f"format is {format!r}", "it can be 'PAX_FORMAT', 'GNU_FORMAT' or 'USTAR_FORMAT'")
        problems.raise_any()
        self._header: dict[str, Any] = {"uname": user, "gname": group, "mode": mode, "mtime": mtime or 0}
        self._format = tarfile.PAX_FORMAT if headers is None else headers
        self._keep_meta = keep_meta
        self._tar: _Tar | None = None
        self._keys: set[str] = set()  # keys of this shard
        self._closed = False

    def write(self, obj: Mapping[str, Any]) -> int:
        """Writes a sample: a dict with ``__key__`` and a value for every field. Returns the bytes of its fields.

        bytes are stored unchanged, str as UTF-8. Other values depend on the last extension of their field: cls, cls2,
        class, count, index, inx, id take a whole number; json, jsn anything that JSON can express; npy an array, npz a
        dict of arrays; jpg, jpeg, img, image, png, ppm, pgm, pbm, tif, tiff a PIL image, or an array (height, width,
        channels) of uint8 or of floats from 0 to 1. A final .gz compresses the value. Pickles (pyd, pickle, pkl, pth,
        pt) are refused, because reading one runs code.
        """
        if self._closed:
            raise ConfigError("ShardWriter.write: the writer is closed", hint="make another one, with start_shard=")
        sample = self._encode(obj)
        key = _checked(sample)
        members = [
            (name, _bytes(name, sample[name]))
            for name in sorted(sample)
            if name != "__key__" and (self._keep_meta or not name.startswith("_"))
        ]
        if not members:
            raise ConfigError(
                f"ShardWriter.write: sample {key!r} has no field", hint="give at least one field in addition to __key__"
            )
        if self._tar is None or self.count >= self.maxcount or self.size >= self.maxsize:
            self.next_stream()
        if key in self._keys:
            raise ConfigError(
                f"ShardWriter.write: this shard already has a sample {key!r}",
                hint="every sample of a shard needs its own key, such as its number",
            )
        assert self._tar is not None
        try:
            size = self._tar.add(key, members)
        except BaseException as error:
            self._drop()  # half a member may have been written
            self._tell(error)
            raise
        self._keys.add(key)
        self.count += 1
        self.total += 1
        self.size += size
        return size

    def next_stream(self) -> None:
        """Finishes the shard and starts the next."""
        self.finish()
        fname = self.fname = self.pattern % self.shard
        if self.verbose:
            _notice.say(f"writing {fname}, {many(self.total, 'sample')} before it")
        self.shard += 1
        self.count = self.size = 0
        self._keys.clear()
        try:
            self._tar = _Tar(fname, self.opener, self._compress, self._format, self._header)
        except OSError as error:
            self._tell(error)
            raise

    def finish(self) -> None:
        """Finishes the shard that is being written; the next sample starts another."""
        if self._tar is None:
            return
        assert self.fname is not None
        try:
            self._tar.finish()
        except BaseException as error:
            self._drop()
            self._tell(error)
            raise
        self._tar = None
        if self.post is not None:
            self.post(self.fname)

    def close(self) -> None:
        """Finishes the last shard. Nothing can be written afterwards."""
        self._closed = True
        self.finish()

    def _tell(self, error: BaseException) -> None:
        """Raises stoker's error for an error of the file system."""
        if not isinstance(error, OSError) or isinstance(error, StokerError):
            return
        where = {"shard": self.fname}
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise SourceError("cannot write the shard", where=where, cause=str(error)) from error
        raise ResourceError(
            "cannot write the shard: no space left",
            code="space",
            where=where,
            cause=str(error),
            hint="free some space and continue from here: the shards before it are complete (start_shard=)",
        ) from error

    def _drop(self) -> None:
        tar, self._tar = self._tar, None
        if tar is not None:
            tar.drop()

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self._closed = True
            self._drop()
        self.close()

    def __repr__(self) -> str:
        return f"ShardWriter({self.pattern!r})"


class _Counted:
    """A stream that knows its position, as tarfile requires, whatever it writes to."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._at = 0

    def write(self, data: bytes) -> int:
        self._stream.write(data)
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        return self._at


class _Tar:
    """One shard. It has its name after ``finish`` and never before; ``drop`` leaves nothing."""

    def __init__(
        self, name: str, opener: Callable[[str], Any] | None, compress: str, format: int, header: Mapping[str, Any]
    ) -> None:
        self._name = name
        self._header = header
        self._temporary: str | None = None
        self._file: Any
        if opener is not None:
            self._file = opener(name)
        else:
            folder, base = os.path.split(name)
            self._temporary = os.path.join(folder, f".{base}.{secrets.token_hex(4)}.tmp")
            self._file = open(self._temporary, "xb")
        self._packed: Any = None
        if compress == "gz":  # without the time and the name that gzip would add
            self._packed = gzip.GzipFile("", "wb", 9, self._file, mtime=0)
        elif compress == "bz2":
            self._packed = bz2.BZ2File(self._file, "wb")
        elif compress == "xz":
            self._packed = lzma.LZMAFile(self._file, "wb")
        stream: Any = _Counted(self._packed or self._file)
        self._tar = tarfile.open(fileobj=stream, mode="w", format=format)

    def add(self, key: str, members: list[tuple[str, bytes]]) -> int:
        total = 0
        for name, body in members:
            info = tarfile.TarInfo(f"{key}.{name}")
            info.size = len(body)
            for word, value in self._header.items():
                setattr(info, word, value)
            self._tar.addfile(info, io.BytesIO(body))
            total += len(body)
        return total

    def finish(self) -> None:
        self._tar.close()
        if self._packed is not None:
            self._packed.close()
        if self._temporary is None:
            self._file.close()
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._temporary, self._name)
        self._temporary = None
        folder = os.open(os.path.dirname(self._name) or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def drop(self) -> None:
        for stream in (self._packed, self._file):
            with suppress(OSError, ValueError):
                if stream is not None:
                    stream.close()
        if self._temporary is not None:
            with suppress(OSError):
                os.unlink(self._temporary)


# Checking arguments.


def _check_pattern(pattern: str, ours: bool, problems: Problems) -> None:
    try:
        first, second = pattern % 0, pattern % 1
    except (TypeError, ValueError):
        first = second = ""
    if first == second:
        problems.add(
            f"pattern is {pattern!r}, so all shards would have the same name", "give one like 'train-%06d.tar'"
        )
    elif ours and ("://" in pattern or pattern.startswith("pipe:")):
        problems.add(
            f"pattern is {pattern!r}: only files can be written", "give opener=, which opens a stream to write to"
        )
    elif ours and not os.path.isdir(os.path.dirname(first) or "."):
        problems.add(f"the folder {os.path.dirname(first)} does not exist", "create it first")


def _compression(compress: bool | str | None, pattern: str, problems: Problems) -> str:
    if compress is False:
        return ""
    if compress is None:
        return _COMPRESS.get(pattern.rpartition(".")[2], "")
    if compress is True:
        return "gz"
    if compress not in _COMPRESS:
        problems.add(
            f"compress is {compress!r}",
            "it can be 'gz', 'bz2' or 'xz'; stoker.pack writes zstd and lz4, which are faster",
        )
        return ""
    return _COMPRESS[compress]


def _encoder(encoder: Any, problems: Problems) -> Encoder:
    if encoder is None or encoder is False:
        return lambda sample: sample
    if encoder is True:
        return lambda sample: _encoded(sample, {})
    if isinstance(encoder, Mapping):
        return lambda sample: _encoded(sample, encoder)
    if not callable(encoder):
        problems.add(f"encoder is {encoder!r}", "give True, False, a dict of extensions, or a function of samples")
    found: Encoder = encoder
    return found


# Encoding samples.


def _checked(sample: Any) -> str:
    """The key of a sample, which must be read back unchanged."""
    if not isinstance(sample, Mapping):
        raise ConfigError(
            f"ShardWriter.write: a sample is of type {type(sample).__name__}", hint="give a dict with __key__"
        )
    key = sample.get("__key__")
    if not isinstance(key, str) or not key:
        raise ConfigError(f"ShardWriter.write: __key__ is {key!r}", hint="give every sample its own text")
    base = key.rpartition("/")[2]
    if not base or "." in base or key.startswith("/") or ".." in key.split("/") or "\0" in key:
        raise ConfigError(
            f"ShardWriter.write: __key__ is {key!r}, which is not a valid sample name: what follows a dot is a field",
            hint="give a relative path without a dot in its last part",
        )
    for name in sample:
        if not isinstance(name, str) or not name or "/" in name or "\0" in name or name.startswith("."):
            raise ConfigError(
                f"ShardWriter.write: sample {key!r} has a field {name!r}", hint="field names are like jpg"
            )
    return key


def _bytes(name: str, value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise ConfigError(
        f"ShardWriter.write: field {name!r} is of type {type(value).__name__}, not bytes",
        hint="encode it yourself, or pass encoder=True",
    )


def _encoded(sample: Any, own: Mapping[str, Encoder]) -> Any:
    if not isinstance(sample, Mapping):
        return sample  # the error will be raised again
    return {
        name: value if not isinstance(name, str) or name.startswith("_") else encode_field(name, value, own)
        for name, value in sample.items()
    }


def encode_field(name: str, value: Any, own: Mapping[str, Encoder]) -> bytes:
    """The bytes of a field; ``own`` are the user's encoders, by extension."""
    inner = name.removesuffix(".gz")
    if isinstance(value, (bytes, bytearray, memoryview, str)):
        body = _bytes(name, value)
    else:
        extension = suffix(inner)
        body = _bytes(name, own[extension](value)) if extension in own else _value(name, extension, value)
    return gzip.compress(body, mtime=0) if inner != name else body


def _value(name: str, extension: str, value: Any) -> bytes:
    wrong = f"ShardWriter.write: field {name!r} is of type {type(value).__name__}"
    kind = written_as(extension)
    try:
        if kind == "number":
            return b"%d" % operator.index(value)
        if kind == "json":
            return json.dumps(value, allow_nan=False).encode()
        if kind == "npy":
            return _arrays(extension, value)
        if kind == "image":
            return _image(_IMAGES[extension], value)
    except (TypeError, ValueError, OSError) as error:
        hint = "give a value that fits the extension (see ShardWriter.write), or bytes"
        raise ConfigError(f"{wrong} and cannot be written as .{extension}", cause=str(error), hint=hint) from error
    except ImportError as error:
        raise ConfigError(wrong, cause=str(error), hint="install it, or give the bytes of the file") from error
    if kind == "text":
        raise ConfigError(wrong, hint=f".{extension} is text: give a str")
    if kind == "pickle":
        raise ConfigError(
            f"{wrong} and would be stored as a pickle, and reading a pickle runs code that it contains",
            hint="store .npy or .json instead; bytes are written as they are",
        )
    why = "is not supported" if kind == "unbuilt" else "has no encoder"
    raise ConfigError(f"{wrong}: .{extension} {why}", hint="give bytes, or encoder={'" + extension + "': function}")


def _arrays(extension: str, value: Any) -> bytes:
    import numpy

    named = value if extension == "npz" else {"": value}
    if not isinstance(named, Mapping):
        raise TypeError("a .npz needs a dict of arrays")
    arrays = {key: numpy.asarray(array) for key, array in named.items()}
    for array in arrays.values():
        if array.dtype.hasobject:
            raise TypeError("an array of objects would be stored as a pickle")
    out = io.BytesIO()
    if extension == "npz":
        numpy.savez_compressed(out, **arrays)  # type: ignore[arg-type]
    else:
        array = arrays[""]
        numpy.save(out, numpy.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)
    return out.getvalue()


def _image(kind: str, value: Any) -> bytes:
    from PIL import Image

    if not isinstance(value, Image.Image):
        value = Image.fromarray(_pixels(value))
    out: BinaryIO = io.BytesIO()
    value.save(out, format=kind, **({"quality": _QUALITY} if kind in ("JPEG", "TIFF") else {}))
    out.seek(0)
    return out.read()


def _pixels(value: Any) -> Any:
    """An array in the form that PIL needs: uint8, (height, width) or (height, width, 3 or 4)."""
    import numpy

    if not isinstance(value, numpy.ndarray):
        raise TypeError("a picture must be a PIL image or a NumPy array (height, width, channels)")
    if value.dtype.kind == "f":
        low, high = float(value.min(initial=0)), float(value.max(initial=0))
        if not (-0.001 <= low and high <= 1.001):
            raise ValueError(f"float pictures must be from 0 to 1, but this one is from {low:g} to {high:g}")
        value = (numpy.clip(value, 0.0, 1.0) * 255.0).astype(numpy.uint8)
    if value.dtype != numpy.uint8:
        raise TypeError(f"pictures must be uint8, or floats from 0 to 1, not {value.dtype}")
    if value.ndim == 3 and value.shape[2] == 1:
        value = value[:, :, 0]
    if value.ndim != 2 and (value.ndim != 3 or value.shape[2] not in (3, 4)):
        raise ValueError(f"its shape is {value.shape}, but pictures are (height, width, channels)")
    return numpy.ascontiguousarray(value)
