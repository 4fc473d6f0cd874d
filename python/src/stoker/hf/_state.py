"""The loader's state in the checkpoints of Hugging Face's Trainer.

StateCallback  writes it into each checkpoint, and loads it on a resume
skipped()      what the Trainer's accelerate.skip_first_batches answers for a loader of stoker's

A checkpoint has ``stoker_state.json``, as ``state_dict()`` returns it. What each rank has for itself (a dataset that is
iterated, a sampler of the user's) is ``stoker_state_0.json`` and so on; states that are not JSON are ``.pt`` files,
which hold no pickled code.

The Trainer counts optimizer steps, and divides to get the epoch and the batches to skip. The loader knows its place.
With transformers 5 the Trainer is told that place (TrainerMixin); otherwise both must agree, or it is an error.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from transformers import TrainerCallback

from .. import _notice
from .._errors import StateError, many
from .._loader import DataLoader

NAME = "stoker_state"

# Loaders that are where the Trainer wants them after so many batches: nothing is left to skip.
_placed: weakref.WeakKeyDictionary[DataLoader[Any], int] = weakref.WeakKeyDictionary()


class StateCallback(TrainerCallback):  # type: ignore[misc]
    """Keeps the state of a stoker.DataLoader in each checkpoint of a Trainer, and loads it on a resume.

    ``stoker.hf.Trainer`` and ``TrainerMixin`` have one. For another Trainer whose ``get_train_dataloader`` returns a
    ``stoker.DataLoader``: ``Trainer(..., callbacks=[stoker.hf.StateCallback()])``. It then looks for the checkpoint in
    ``args.output_dir``; ``checkpoint`` is the folder if that is another.

    Raises StateError on a resume where the state is of another dataset, order or seed, or is missing and the loader
    cannot skip batches.
    """

    def __init__(self, checkpoint: str | os.PathLike[str] | None = None) -> None:
        self.checkpoint = checkpoint
        self._resumed = False  # for this training
        self._expected: tuple[int, int] | None = None  # where the next pass must begin: its number, its position
        self._kept: dict[str, Any] | None = None  # the state after the last whole optimizer step
        self._written: tuple[str, int] | None = None  # the folder and the step that were written last

    def begin(self, loader: DataLoader[Any] | None) -> None:
        """A training begins."""
        self._resumed, self._expected, self._kept, self._written = False, None, None, None
        if loader is not None:
            _placed.pop(loader, None)

    # Saving.

    def write(self, loader: DataLoader[Any], folder: str, args: Any, state: Any) -> None:
        """Writes the loader's state into a checkpoint; every rank calls it."""
        kept = loader.state_dict() if self._kept is None else self._kept
        if _alone(loader) or args.should_save:
            os.makedirs(folder, exist_ok=True)
            _write(os.path.join(folder, _name(loader, args)), kept)
        self._written = folder, state.global_step

    def on_save(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any) -> None:
        folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        wrote = self._written is not None and self._written[1] == state.global_step
        if isinstance(train_dataloader, DataLoader) and not wrote:
            self.write(train_dataloader, folder, args, state)

    def on_step_end(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any) -> None:
        # The batches of an optimizer step are fetched together. If a callback stops the epoch between them, the
        # checkpoint is of the step before.
        if args.gradient_accumulation_steps > 1 and isinstance(train_dataloader, DataLoader):
            self._kept = train_dataloader.state_dict()

    # Resuming.

    def resume(
        self, loader: DataLoader[Any], folder: str | os.PathLike[str], args: Any, epoch: int, steps: int
    ) -> tuple[int, int]:
        """Moves the loader to where a checkpoint was saved, by the Trainer's count after so many batches of an epoch.
        Returns the loader's count."""
        state = _read(folder, loader, args)
        if state is None:
            _skip(loader, folder, epoch, steps)
        else:
            loader.load_state_dict(state)
            epoch, steps = _place(loader)
        self._resumed = True
        if steps:
            _placed[loader] = steps
            self._expected = epoch, loader._next_pass()[1]
        else:
            begins = loader._at.restored
            if begins is None or loader._nominal(*begins) != epoch:
                begins = loader._start(epoch)
            self._expected = epoch, begins[1]
        return epoch, steps

    def on_train_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any) -> None:
        if not isinstance(train_dataloader, DataLoader):
            return
        if state.global_step and not self._resumed and not args.ignore_data_skip:
            counted = _counted(args, state, train_dataloader)
            folder = self.checkpoint or os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
            found = self.resume(train_dataloader, folder, args, *counted)
            if found != counted:
                raise _differ(found, counted)
        if args.gradient_accumulation_steps > 1:
            self._kept = train_dataloader.state_dict()

    def on_step_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any) -> None:
        """Before anything is trained on after a resume: the loader began where its state says."""
        if self._expected is None or not isinstance(train_dataloader, DataLoader):
            return
        expected, self._expected = self._expected, None
        at = train_dataloader._at.progress
        begun = None if at is None else (at.nominal, at.start)
        if begun == (expected[0] + 1, 0) and _alone(train_dataloader):
            return  # the saved pass was at its end, which only the iteration tells
        if at is None or begun != expected:
            raise StateError(
                f"the loader was to go on at position {expected[1]} of epoch {expected[0]}, and began at "
                + ("no place" if at is None else f"position {at.start} of epoch {at.nominal}"),
                hint="leave set_epoch and load_state_dict of the training loader to the Trainer",
            )

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.begin(None)


def _alone(loader: DataLoader[Any]) -> bool:
    """Whether the states of the ranks differ: only an iteration tells the samples of each."""
    return loader._settings.open_ended


def _name(loader: DataLoader[Any], args: Any) -> str:
    return f"{NAME}_{args.process_index}" if args.world_size > 1 and _alone(loader) else NAME


def _write(path: str, state: dict[str, Any]) -> None:
    """All of a state or nothing, as ``path`` with .json or .pt."""
    text = None
    with suppress(TypeError, ValueError, RuntimeError):  # a dataset's own state may hold anything
        dumped = json.dumps(state)
        text = dumped if json.loads(dumped) == state else None
    written, other = (".json", ".pt") if text is not None else (".pt", ".json")
    temporary = f"{path}{written}.{os.getpid()}"
    if text is not None:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
    else:
        import torch

        torch.save(state, temporary)
    os.replace(temporary, path + written)
    with suppress(FileNotFoundError):  # of an earlier run in the same folder
        os.unlink(path + other)


def _read(folder: str | os.PathLike[str], loader: DataLoader[Any], args: Any) -> dict[str, Any] | None:
    """The state in a checkpoint; None if there is none. StateError if it is for other ranks."""
    path = os.path.join(folder, _name(loader, args))
    found: dict[str, Any]
    if os.path.exists(path + ".json"):
        with open(path + ".json", encoding="utf-8") as file:
            found = json.load(file)
        return found
    if os.path.exists(path + ".pt"):
        import torch

        try:
            found = torch.load(path + ".pt", weights_only=True)
        except Exception as error:
            raise StateError(
                f"cannot load {path}.pt: {error}",
                hint="let state_dict() of the dataset return numbers, texts, tensors, lists and dicts",
            ) from error
        return found
    there = sorted(name for name in os.listdir(folder) if name.startswith(NAME)) if os.path.isdir(folder) else []
    if there:
        raise StateError(
            f"{folder} has {', '.join(there[:4])}, and rank {args.process_index} of {args.world_size} needs "
            f"{os.path.basename(path)}",
            hint="resume with the number of ranks that saved it, and the same kind of dataset and sampler",
        )
    return None


def _skip(loader: DataLoader[Any], folder: str | os.PathLike[str], epoch: int, steps: int) -> None:
    """For a checkpoint without a state: the loader's own order from there on."""
    loader.set_epoch(epoch)
    if not steps:
        return
    if _alone(loader):
        raise StateError(
            f"{folder} has no state of the loader ({NAME}.json), and without one its place in the middle of an epoch "
            "is not known",
            hint="resume from a checkpoint that a stoker.hf.Trainer saved, or pass ignore_data_skip=True to begin the "
            "epoch again",
        )
    _notice.warn(
        f"{folder} has no state of the loader ({NAME}.json): going on after {many(steps, 'batch')} of epoch {epoch} in "
        "stoker's order. If another loader trained until there, some samples of this epoch come twice and others not"
    )
    loader.skip(steps)


def _place(loader: DataLoader[Any]) -> tuple[int, int]:
    """The pass in which a loader goes on with its state, and how many of its batches are over."""
    assert loader._at.restored is not None
    epoch, position = loader._at.restored
    number = loader._nominal(epoch, position)
    if loader._settings.open_ended:
        way = loader._at.way
        done = way.step if way is not None else -(-position // loader._stride)
        over = way is not None and way.ended
        with suppress(TypeError):  # no length
            over = over or done >= len(loader)
        return (number + 1, 0) if over else (number, done)
    left = loader._left(epoch, position)
    if left is None:
        left = loader._rest(epoch, position)
        assert left is not None
    # Not the position divided: with another world size or batch size, the rest of the epoch has batches of its own.
    return (number, max(0, len(loader) - left)) if left > 0 else (number + 1, 0)


def _counted(args: Any, state: Any, loader: DataLoader[Any]) -> tuple[int, int]:
    """The epoch, and the batches over in it, by the Trainer's arithmetic."""
    accumulated = args.gradient_accumulation_steps
    try:
        steps = max(1, -(-len(loader) // accumulated))
    except TypeError:
        steps = state.max_steps
    epoch, done = divmod(state.global_step, steps)
    return epoch, done * accumulated


def _differ(found: tuple[int, int], counted: tuple[int, int]) -> StateError:
    return StateError(
        f"the checkpoint was saved after {many(found[1], 'batch')} of epoch {found[0]} of the loader, and the Trainer "
        f"would go on after {many(counted[1], 'batch')} of epoch {counted[0]}",
        cause="the Trainer divides its steps by the length of an epoch: the world size, the batch size or the "
        "dataset's length has changed, or a callback ended an epoch early",
        hint="resume with the settings of the saved run; stoker.hf.Trainer with transformers 5 follows the loader's "
        "place",
    )


class _Skipped:
    """A loader whose next pass begins after some batches: of whatever epoch is set until it begins."""

    def __init__(self, loader: DataLoader[Any], batches: int) -> None:
        self._loader, self._batches = loader, batches

    def set_epoch(self, epoch: int) -> None:
        self._loader.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        batches, self._batches = self._batches, 0
        if batches:
            self._loader.skip(batches)
        return iter(self._loader)

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_loader"], name)


def skipped(loader: DataLoader[Any], batches: int) -> Any:
    """The loader after so many batches, or what skips them when it is iterated."""
    done = _placed.pop(loader, None)
    if done is None:
        return _Skipped(loader, batches)
    if done != batches:
        skips = many(batches, "batch")
        raise StateError(f"the Trainer skips {skips}, and the loader is after {done}")
    return loader
