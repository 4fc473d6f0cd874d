"""Batch transforms in the training process: batches that Python made, and functions of the user's.

Mixer     mixes what another maker made, as the engine has chosen, or leaves its pictures to a device
Changer   calls the user's function with what another maker made
Augmenter calls the functions of device_transform= with its pictures

The engine mixes the batches that it makes itself (internal/compose/mix.go). Those of Python workers, of collate
functions and of num_workers=0 have whatever structure the user's code gave them, so they are mixed here, in place, one
row after the other: memory is read and written once, and a row of a picture is all that is allocated. With a device,
labels are mixed here and pictures there (_device_mix.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._batch import _Facts
from ._bundle import Bundle
from ._device_mix import Blend, Choice, Mixing
from ._errors import ConfigError
from ._keyed import base_seed
from ._mix import Changes, Mix
from ._moved import like
from ._spec import Settings
from ._theirs import asked
from ._values import named, register
from ._wire import Message


class _Wrapper:
    """A maker of batches around another one."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_made"], name)


class Mixer(_Wrapper):
    """Makes mixed batches of those of Python code. ``ours``: nobody else has their arrays, so they may be changed.
    ``there``: batches are about to be copied to a device, which mixes their pictures."""

    def __init__(self, made: Any, mix: Mix, ours: bool, there: bool) -> None:
        super().__init__(made)
        self._mix = mix
        self._ours, self._there = ours, there

    def make(self, message: Message, root: Any) -> tuple[Any, Mapping[str, Any]]:
        batch, facts = self._made.make(message, root)
        valid = facts["valid"].tolist() if facts["valid"] is not None else []
        return named(mixed(batch, self._mix, message["mixed"], valid, self._ours, self._there), facts), facts


class Changer(_Wrapper):
    """Makes what the user's function returns for a batch, and the facts of that batch. Where batches go to a device in
    between, ``made`` makes them, and ``changed`` is called with those on the device."""

    def __init__(self, made: Any, changes: Changes) -> None:
        super().__init__(made)
        self.made = made
        self._function = changes.function
        register()

    def make(self, message: Message, root: Any) -> Any:
        found = self._made.make(message, root)
        if isinstance(found, Bundle):
            take, first = found.take, message["step"]
            counted = iter(range(first, first + len(message["parts"])))

            def changed() -> tuple[Any, Message]:
                batch, told = take()
                return self.changed(batch, message["epoch"], next(counted)), told

            found.take = changed
            return found
        return self.changed(found, message["epoch"], message["step"])

    def changed(self, found: Any, epoch: int, step: int) -> tuple[Any, Mapping[str, Any]]:
        """What the function returns for a batch of ``made``, and the facts."""
        if type(found) is tuple and len(found) == 2:  # of an Assembler
            batch, facts = found
        else:
            batch = found
            facts = {"epoch": epoch, "step": step}
            facts = {name: getattr(batch, name, facts.get(name)) for name in ("ids", "valid", "epoch", "step", "bad")}
        changed = asked("batch_transform", self._function, batch)
        if isinstance(changed, _Facts):  # of the pytrees of torch and JAX, which lose them
            vars(changed).update(facts)
        return named(changed, facts), facts


class Augmenter(_Wrapper):
    """Makes batches whose pictures went through functions of the user's. Where batches go to a device in between,
    ``made`` makes them, and ``changed`` is called with those on the device."""

    def __init__(self, made: Any, settings: Settings) -> None:
        super().__init__(made)
        self.made = made
        assert settings.on_device is not None
        self._on_device = settings.on_device
        self._pictures = made.pictures
        if not self._pictures:
            raise ConfigError(
                "device_transform is for pictures, and no field is one",
                hint="use batch_transform=, whose function gets whole batches",
            )
        self._seed = settings.seed
        self._rank, self._world = settings.process

    def make(self, message: Message, root: Any) -> Any:
        return self.changed(self._made.make(message, root), message["epoch"], message["step"])

    def changed(self, found: Any, epoch: int, step: int) -> Any:
        """The batch with its pictures changed."""
        key = base_seed(self._seed.value, epoch, step * self._world + self._rank + 1)
        return self._on_device.changed(found, self._pictures, key)


def around(made: Any, settings: Settings) -> Any:
    """The maker of a loader's batches, with what its batch transform does in this process."""
    mix, hands = settings.mix, settings.hands
    if settings.on_device is not None and settings.on_device.functions:
        return Augmenter(made, settings)
    if isinstance(mix, Changes):
        return Changer(made, mix)
    if mix is None or hands is None:
        return made
    ours = bool(hands.workers) or hands.lookup or hands.collate is None and not hands.single
    target = settings.target
    return Mixer(made, mix, ours, there=target is not None and target.moves and not target.jax)


# Mixing.


def mixed(batch: Any, mix: Mix, choice: Choice, valid: Sequence[bool], ours: bool, there: bool = False) -> Any:
    """The batch, mixed. ``valid`` marks the rows that are mixed with each other; other rows stay as they are. With
    ``there``, a Blend takes the place of each picture that a device can mix."""
    op = mix.op["transforms"][choice["number"]] if "transforms" in mix.op else mix.op
    name = op["op"]
    labels = asked(name, mix.labels, batch, name="labels_getter")
    if not _is_array(labels):
        raise ConfigError(f"{name}: the labels must be a tensor, but got {type(labels).__name__}")
    leaves: list[Any] = []
    _leaves(batch, leaves)
    if not any(leaf is labels for leaf in leaves):
        raise ConfigError(f"{name}: labels_getter returned an array that is not in the batch", hint="return batch[1]")
    pictures = _pictures(leaves, labels)
    if not pictures:
        raise ConfigError(f"{name}: there is no array of pictures in the batch beside the labels")
    probable = _probabilities(labels, op, name)
    rows = [row for row, is_valid in enumerate(valid) if is_valid]
    if len(valid) != len(labels):  # the user's code made batches of its own
        rows = list(range(len(labels)))
    for picture in pictures:
        _check(picture, len(labels), name, floats=not choice["cut"])
    height, width = pictures[0].shape[-2:]
    mixing = Mixing.of(choice, [True] * len(rows), (height, width))
    share, region = mixing.share, mixing.region
    soft = _writable(probable, True, lambda x: _blend(x, rows, share))
    made = {id(labels): _jax(soft) if type(labels).__module__.startswith("jax") else soft}
    for picture in pictures:
        if there and _copied_there(picture):
            every = rows == list(range(len(labels)))
            made[id(picture)] = Blend(picture, mixing if every else mixing._replace(rows=rows), planes=True)
            continue
        change = (lambda x: _blend(x, rows, share)) if region is None else (lambda x: _cut(x, rows, *region))
        made[id(picture)] = _writable(picture, ours, change)
    return _rebuilt(batch, made)


def _copied_there(picture: Any) -> bool:
    """Whether it is a tensor whose memory is copied to a device as it is."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(picture, torch.Tensor) or picture.device.type != "cpu":
        return False
    kept = type(picture) is torch.Tensor or type(picture).__module__.startswith("torchvision.tv_tensors")
    return bool(kept and picture.layout is torch.strided and not picture.requires_grad and not picture.is_conj())


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "ndim")


def _leaves(value: Any, found: list[Any]) -> None:
    if isinstance(value, Mapping):
        for inner in value.values():
            _leaves(inner, found)
    elif isinstance(value, (tuple, list)):
        for inner in value:
            _leaves(inner, found)
    elif _is_array(value):
        found.append(value)


def _pictures(leaves: Sequence[Any], labels: Any) -> list[Any]:
    """What is mixed besides the labels: torchvision's images and videos, else the first array."""
    others = [leaf for leaf in leaves if leaf is not labels]
    marked = [leaf for leaf in others if type(leaf).__module__.startswith("torchvision.tv_tensors")]
    return [leaf for leaf in marked if type(leaf).__name__ in ("Image", "Video")] if marked else others[:1]


def _check(picture: Any, rows: int, name: str, floats: bool) -> None:
    dims = 5 if type(picture).__name__ == "Video" else 4
    if picture.ndim != dims:
        raise ConfigError(f"{name}: expected a batched input with {dims} dims, but got {picture.ndim} dimensions")
    if picture.shape[0] != rows:
        raise ConfigError(
            f"{name}: the batch size of the image or video does not match the batch size of the labels: "
            f"{picture.shape[0]} != {rows}"
        )
    if floats and "float" not in str(picture.dtype):
        raise ConfigError(
            f"{name} needs floats, and the pictures are {picture.dtype}",
            hint="end the transform with ToDtype(torch.float32, scale=True)",
        )


def _probabilities(labels: Any, op: Mapping[str, Any], name: str) -> Any:
    """The labels as probabilities, in memory of their own."""
    classes = op.get("num_classes")
    if labels.ndim not in (1, 2):
        raise ConfigError(
            f"{name}: labels should be class numbers with shape (batch_size,) or probabilities with shape (batch_size, "
            f"num_classes), but the shape is {tuple(labels.shape)}"
        )
    floating = "float" in str(labels.dtype)
    torch: Any = sys.modules.get("torch")
    tensor = torch is not None and isinstance(labels, torch.Tensor)
    if labels.ndim == 2:
        if classes is not None and labels.shape[-1] != classes:
            raise ConfigError(
                f"{name}: labels have {labels.shape[-1]} numbers, and num_classes is {classes}",
                hint="leave num_classes out",
            )
        if tensor:
            return labels.clone() if floating else labels.float()
        return labels.copy() if floating else labels.astype("float32")
    if classes is None:
        raise ConfigError(f"{name}: num_classes must be passed if the labels are class numbers")
    if floating or "bool" in str(labels.dtype):
        raise ConfigError(
            f"{name}: labels of one number each must be whole class numbers, and these are {labels.dtype}"
        )
    numbers = labels.tolist()
    wrong = [number for number in numbers if not 0 <= number < classes]
    if wrong:
        raise ConfigError(
            f"{name}: a label is {wrong[0]}, and num_classes is {classes}",
            hint="labels go from 0 to num_classes - 1: give the number of all classes",
        )
    if tensor:
        hot = torch.zeros((len(numbers), classes), dtype=torch.float32, device=labels.device)
        return hot.scatter_(1, labels.long().unsqueeze(1), 1.0)
    import numpy

    hot = numpy.zeros((len(numbers), classes), "float32")
    hot[range(len(numbers)), numbers] = 1
    return hot


def _writable(array: Any, ours: bool, change: Callable[[Any], None]) -> Any:
    """The array after a change in place; of an array that cannot be changed, or is not ours, a changed copy."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        with torch.no_grad():
            array = array if ours and not array.requires_grad else array.detach().clone()
            change(array)
        return array
    import numpy

    if isinstance(array, numpy.ndarray):
        array = array if ours and array.flags.writeable else array.copy()
        change(array)
        return array
    copy = numpy.array(array)
    change(copy)
    return _jax(copy)


def _jax(array: Any) -> Any:
    import jax.numpy

    return jax.numpy.array(array, copy=True)


def _copied(array: Any) -> Any:
    return array.clone() if hasattr(array, "clone") else array.copy()


def _blend(x: Any, rows: Sequence[int], share: float) -> None:
    """Each row becomes before * (1 - share) + own * share, from the last to the first: the row before is unmixed."""
    if not rows:
        return
    last = _copied(x[rows[-1]])
    for at in range(len(rows) - 1, -1, -1):
        own, before = x[rows[at]], x[rows[at - 1]] if at else last
        if hasattr(x, "clone") or x.dtype.itemsize != 2:
            own *= share
            own += before * (1.0 - share)
        else:  # NumPy would round the factors to 16 bits
            own[...] = _times(own, share) + _times(before, 1.0 - share)


def _times(x: Any, factor: float) -> Any:
    """x * factor, of numbers of 16 bits, multiplied in float32, as torch does."""
    import numpy

    return (x.astype("float32") * numpy.float32(factor)).astype(x.dtype)


def _cut(x: Any, rows: Sequence[int], x1: int, y1: int, x2: int, y2: int) -> None:
    """Each row gets the region of the row before."""
    if not rows:
        return
    last = _copied(x[rows[-1], ..., y1:y2, x1:x2])
    for at in range(len(rows) - 1, -1, -1):
        x[rows[at], ..., y1:y2, x1:x2] = x[rows[at - 1], ..., y1:y2, x1:x2] if at else last


def _rebuilt(value: Any, made: Mapping[int, Any]) -> Any:
    """The same structure with the arrays that were made in place of those with these ids."""
    if id(value) in made:
        return made[id(value)]
    if isinstance(value, Mapping):
        inner: Any = {key: _rebuilt(one, made) for key, one in value.items()}
    elif isinstance(value, (tuple, list)):
        inner = [_rebuilt(one, made) for one in value]
    else:
        return value
    if isinstance(value, _Facts):  # named() makes one of it again
        return tuple(inner) if isinstance(value, tuple) else inner
    return like(value, inner)
