"""The keyword ``device_transform``: what is done to the pictures of a batch where the batch is.

read()     the keyword -> OnDevice
OnDevice   steps that the engine knows, of which it makes the choices (_device_steps.py does them), then MixUp or CutMix
           (_device_mix.py), then functions
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ._batch import _Facts
from ._compile import _changed, _is_ours, _one, flat
from ._errors import ConfigError, Problems, many
from ._mix import Mix, mix_of
from ._parameters import Wrong
from ._target import Target, takes_work
from ._theirs import asked, called, digest_with
from ._views import views_of


class OnDevice(NamedTuple):
    """What ``device_transform=`` says."""

    ops: list[dict[str, Any]]  # part of the Spec
    functions: tuple[Callable[[Any], Any], ...]  # of the pictures of a batch, after these and ``mix``
    mix: Mix | None = None

    def changed(self, batch: Any, pictures: Sequence[Any], key: int) -> Any:
        """A batch whose pictures went through the functions. ``pictures`` are the places of pictures in it."""

        def through(value: Any) -> Any:
            if type(value) is list:  # views
                return [through(one) for one in value]
            for function in self.functions:
                made = asked("device_transform", function, value)
                value = _checked(function, made, len(value))
            return value

        with _seeded(key, batch):
            return changed_in(batch, pictures, through)

    def pipeline(self, known: str) -> str:
        """The digest of fields and transforms in states, with the functions in it."""
        return digest_with(known, "device_transform", *self.functions) if self.functions else known


def _checked(function: Any, found: Any, rows: int) -> Any:
    """What a function returned for so many pictures. ConfigError if it cannot take their place."""
    if found is None:
        what = "None"
    elif not hasattr(found, "shape") or tuple(found.shape[:1]) == (rows,):
        return found
    else:
        what = f"a {type(found).__name__} of shape {tuple(found.shape)}"
    raise ConfigError(
        f"device_transform: {called(function)} returned {what} for a batch of {many(rows, 'picture')}",
        hint="return the changed pictures, one for each that it got: they take their place in the batch",
    )


def changed_in(batch: Any, places: Sequence[Any], change: Callable[[Any], Any]) -> Any:
    """A batch with ``change(value)`` in these places: numbers, keys, or None for a batch that is one array."""
    if list(places) == [None]:
        found = change(batch)
        if found is not batch and hasattr(found, "__dict__"):
            vars(found).update(vars(batch))
        return found
    assert isinstance(batch, _Facts)
    made: Any = batch
    if isinstance(made, Mapping):
        made = type(batch)({key: change(value) if key in places else value for key, value in made.items()})  # type: ignore[call-arg]
    else:
        made = type(batch)(change(value) if at in places else value for at, value in enumerate(made))  # type: ignore[call-arg]
    vars(made).update(vars(batch))
    return made


def read(
    k: Mapping[str, Any], output: str, target: Target | None, native: bool, single: bool, problems: Problems
) -> OnDevice | None:
    """What the keyword says; None if it is not given. Adds what is wrong to problems. ``native``: the engine makes the
    batches."""
    transform = k["device_transform"]
    if transform is None:
        return None
    where = "device_transform"
    otherwise = "give the steps to the dataset's transform; a function as batch_transform= gets the batch on the device"
    takes_work(where, output, target, native, single, problems, otherwise)
    if not native:
        return None
    steps = flat(transform)
    ops: list[dict[str, Any]] = []
    for at, step in enumerate(steps):
        if views_of(step) is not None and _is_ours(type(step)):
            hint = "put Views into the dataset's transform: each view then goes through device_transform"
            problems.add(f"{where} cannot make views", hint)
            return None
        try:
            mix = mix_of(step)
        except Wrong as wrong:
            problems.add(f"{where}: {wrong.what}", wrong.hint)
            return None
        if mix is None and (held := _held_mixer(step)) is not None:
            problems.add(
                f"{where}: {type(step).__name__} holds {type(held).__name__}, which mixes whole batches; only a "
                "RandomChoice may, of nothing else",
                "end with one of MixUp(...), CutMix(...) or RandomChoice([MixUp(...), CutMix(...)]); to mix only some "
                "batches, mix them in the loop",
            )
            return None
        if mix is not None:
            return _mixed(ops, mix, steps[at + 1 :], bool(k["static_buffers"]), problems)
        strange = Problems(where)
        found = _one(step, f"transform {at + 1} of {len(steps)}", strange)
        if strange and _is_ours(type(step)) and _changed(step) is None:
            for what, try_this in strange._found:
                problems.add(f"{where}: {what}", try_this)
            return None
        if strange:
            return _with_functions(ops, steps[at:], bool(k["static_buffers"]), problems)
        ops += found
    return OnDevice(ops, ())


def _mixed(
    ops: list[dict[str, Any]], mix: Mix, after: Sequence[Any], static: bool, problems: Problems
) -> OnDevice | None:
    """Steps, then MixUp or CutMix, then functions."""
    if (second := next(filter(_mixes, after), None)) is not None:
        problems.add(
            f"device_transform: {type(second).__name__} comes after {mix.words}, and batches are mixed once",
            "RandomChoice([MixUp(...), CutMix(...)]) does one of them to each batch; to do both, do it in the loop",
        )
        return None
    if (late := next(filter(_known, after), None)) is not None:
        problems.add(
            f"device_transform: {type(late).__name__} comes after {mix.words}, which is done to whole batches, last",
            f"put {mix.words} after it; only functions of your own may follow",
        )
        return None
    return _with_functions(ops, after, static, problems, mix) if after else OnDevice(ops, (), mix)


def _known(step: Any) -> bool:
    """Whether the engine knows a step."""
    if isinstance(step, type):
        return False
    strange = Problems("")
    if not _is_ours(type(step)):
        _one(step, "", strange)
    return not strange


def _held_mixer(step: Any) -> Any:
    """A transform in a container, at any depth, that mixes batches; None: there is none."""
    if isinstance(step, type) or not isinstance(inner := getattr(step, "transforms", None), (list, tuple)):
        return None
    return next((found for one in inner if (found := one if _mixes(one) else _held_mixer(one)) is not None), None)


def _mixes(step: Any) -> bool:
    try:
        return mix_of(step) is not None
    except Wrong:
        return True


def _with_functions(
    ops: list[dict[str, Any]], functions: Sequence[Any], static: bool, problems: Problems, mix: Mix | None = None
) -> OnDevice | None:
    for function in functions:
        if isinstance(function, type) or not callable(function):
            problems.add(
                f"device_transform: {called(function)} cannot be called", "give transforms, or functions of a batch"
            )
            return None
        if _is_ours(type(function)) or _mixes(function):
            problems.add(
                f"device_transform: {type(function).__name__} comes after {called(functions[0])}, which is Python",
                "put it before the first function of your own",
            )
            return None
    if static:
        problems.add(
            f"static_buffers needs the same tensors every time, and {called(functions[0])} of device_transform returns "
            "new ones",
            "call it in the loop",
        )
    return OnDevice(ops, tuple(functions), mix)


@contextmanager
def _seeded(key: int, batch: Any) -> Iterator[None]:
    """torch's generators, of the CPU and of the devices that have the batch, begin at a key, and are as before
    afterwards."""
    import torch

    values = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, tuple) else [batch]
    every = [one for value in values for one in (value if type(value) is list else [value])]
    cuda = sorted({one.device.index for one in every if isinstance(one, torch.Tensor) and one.is_cuda})
    with torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(key)
        for number in cuda:
            torch.cuda.default_generators[number].manual_seed(key)
        yield
