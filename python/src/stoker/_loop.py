"""Where the loop over a loader is, and where it goes next: epochs, steps, state, receipts.

Nothing here starts anything: two questions to the engine, ``_info`` and ``_asked``, say how long an epoch is.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import _notice
from ._advice import Checked
from ._datasets import Dataset
from ._errors import MAX_EPOCH, ConfigError, many, whole
from ._feed import ANOTHER_RANKS, Feed
from ._iterable import refuse
from ._iterate import Progress
from ._mix import Changes
from ._numbers import scalar
from ._orders import given
from ._python import Iterated, Own
from ._receipt import VERSION, Part
from ._state import STATE_VERSION, compare, compare_paths, skipped
from ._theirs import warn_of_changes
from ._trainers import at_end, prepared

if TYPE_CHECKING:
    from . import _client
    from ._iterate import Passage
    from ._position import Position
    from ._spec import Settings


class Positioned(Checked):
    """What DataLoader tells of its loop, and how it moves it. Positions count the items of an epoch over all ranks.

    DataLoader sets these attributes, and opens the engine in ``_info`` and ``_asked`` if it has to.
    """

    batch_size: Any
    _at: Position
    _dataset: Dataset
    _given: Any
    _remote: _client.Loader | None
    _settings: Settings
    _unused: weakref.ref[Passage] | None  # the newest iterator, if no pass has begun since

    def _info(self) -> _client.Opened:
        """What the engine says about the loader."""
        raise NotImplementedError

    def _asked(self) -> _client.Loader:
        """The loader in the engine, to answer a question; works without an iteration."""
        raise NotImplementedError

    def _next_pass(self) -> tuple[int, int, int]:
        """Epoch, position and number of the next pass; it begins when its first batch is asked for."""
        if self._at.restored is not None:
            epoch, position = self._at.restored
            return epoch, position, epoch if self._native_sampler else self._nominal(epoch, position)
        if self._native_sampler:
            epoch, position = self._sampler._coming()
            return epoch, position, epoch
        return (*self._start(self._at.next_epoch), self._at.next_epoch)

    def _coming(self) -> tuple[Progress, int | None]:
        """The next pass, and the number of steps left in it, or None: to the end of the epoch."""
        epoch, position, nominal = self._next_pass()
        progress = Progress(epoch, position, nominal=nominal)
        if self._settings.ordering.walked:
            progress.feed = self._fed(epoch, position)
        progress.way = self._dataset._way(self._at, self._settings)
        return progress, self._left(epoch, position)

    def _took(self, progress: Progress) -> None:
        """A pass has begun; the one after it is the next."""
        if self._native_sampler:
            if self._at.restored is not None:
                self._sampler.set_epoch(progress.epoch)
            progress.follower = self._sampler._begin()
            progress.follower.position = progress.position
        self._part(progress, progress.epoch, progress.position)
        self._at.restored = None
        self._at.seen = None
        self._at.way = None
        self._at.decided = False
        self._at.next_epoch = progress.nominal + 1
        self._at.progress = progress
        self._unused = None

    def _standing(self) -> Progress | None:
        """How far the loop is; None if the next pass counts: before any pass, and if the last one has ended or was
        abandoned and an iterator waits for its first batch; with Accelerate, which restores the loader of a validation
        too, and counts an epoch as over at its last batch, from there on."""
        at, unused = self._at.progress, self._unused
        if at is not None and prepared(self) and (at.ended or at_end(self)):
            return None
        if at is None or at.restored or unused is None or unused() is None:
            return at
        items = None if at.over else self._items(at.epoch)
        return None if at.over or (items is not None and at.position >= items) else at

    def _fed(self, epoch: int, position: int) -> Feed:
        """A pass over the user's sampler, from a position on."""
        ordering = self._settings.ordering
        if self._at.restored is not None and callable(decide := getattr(ordering.sampler, "set_epoch", None)):
            decide(epoch)
        samples = self._dataset._nameable(self._settings)
        drop = self._settings.tail == "drop"
        rank, _ = self._settings.process
        feed = Feed(ordering.sampler, self._size, ordering.batched, drop, samples, self._info().samples, rank)
        if self._at.seen is not None:
            feed.skip(position, self._at.seen)
        return feed

    def _part(self, progress: Progress, epoch: int, position: int) -> None:
        """Starts a new part of the receipt."""
        progress.part = Part(epoch, position, *self._rank)
        self._at.parts.append(progress.part)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass; later passes count up from it. Call it on every rank with the same number.

        The next pass is the one whose first batch is asked for next, also with an iterator that already exists. Right
        after ``load_state_dict``, setting the epoch of the state keeps the state's position.

        Raises ConfigError unless epoch is an integer from 0 to 2**63 - 1.
        """
        epoch = scalar(epoch)
        if not whole(epoch) or not 0 <= epoch <= MAX_EPOCH:
            raise ConfigError(
                f"DataLoader.set_epoch: the epoch is {epoch!r:.80}", hint="epochs are integers from 0 to 2**63 - 1"
            )
        if callable(decide := getattr(self._settings.ordering.sampler, "set_epoch", None)):
            decide(epoch)
        self._at.decided = True
        if self._at.restored is not None:
            if self._nominal(*self._at.restored) == epoch:
                return
            self._at.restored = None
            self._at.seen = None
        self._at.next_epoch = epoch
        if self._at.progress is not None and self._at.progress.restored:
            self._at.progress = None

    def __len__(self) -> int:
        """Batches in a whole pass on this rank (samples, if they are not batched)."""
        if self._epoch_steps is not None:
            return self._epoch_steps
        return self._steps()

    def _steps(self) -> int:
        """Batches in an epoch of the dataset."""
        ordering = self._settings.ordering
        if isinstance(self._dataset, Iterated):
            return self._dataset.batches(self._settings)
        if ordering.walked:
            items = len(ordering.sampler)
            if ordering.batched:
                return items
            return items // self._size if self._settings.tail == "drop" else -(-items // self._size)
        if not ordering.plain or self._dataset._recipe().mix is not None:
            at = self._standing()
            epoch = self._at.next_epoch if at is None else at.epoch
            return int(self._asked().ask("steps", epoch=epoch))
        own = isinstance(self._dataset, Own)  # its length may have changed
        if not own and self._remote is not None and self._remote.opened is not None:
            samples = self._remote.opened.samples
        else:
            samples = self._dataset._samples()
        _, world = self._rank
        step = world * self._size
        if self._settings.tail == "drop":
            return samples // step
        if self._settings.tail == "fill":
            return -(-samples // step)
        share = -(-samples // world)
        return -(-share // self._size)

    def _share_of_rank(self) -> int:
        """Samples of this rank in an epoch, as torch's samplers count them: with those that make the ranks' shares
        equal, not with those that fill up a batch, and with what drop_last drops."""
        ordering = self._settings.ordering
        if ordering.plain and not self._settings.iterates and self._dataset._recipe().mix is None:
            return -(-(self._dataset._samples()) // self._rank[1])
        return len(self) * self._size

    @property
    def _sampler(self) -> Any:
        return self._settings.ordering.sampler

    @property
    def _native_sampler(self) -> bool:
        return self._sampler is not None and not self._settings.ordering.walked

    def _check_sampler(self) -> None:
        """A sampler of ours over another number of samples says which ids it means, as torch's do, so it is iterated.
        So is one that has begun to count epochs: it continues counting."""
        if not self._native_sampler:
            return
        drawn, there = self._sampler._samples(), self._dataset._samples()
        if drawn != there and not (drawn < there and self._settings.ordering.picked):
            self._settings = self._settings.walking()
        else:
            self._at.next_epoch = self._sampler.state_dict()["epoch"]

    @property
    def _size(self) -> int:
        """Samples in one delivery."""
        return self._settings.size or self._dataset._recipe().batch or 1

    # With .with_epoch(n), passes are pieces of n steps from the endless sequence of the dataset's own epochs. All
    # batches are full there, so everything is counted in steps. Otherwise a pass is an epoch.

    @property
    def _epoch_steps(self) -> int | None:
        recipe = self._dataset._recipe()
        if recipe.epoch_items is None:
            return None
        if recipe.epoch_in_batches or self._settings.single:
            return recipe.epoch_items
        if self._settings.tail == "drop":
            return recipe.epoch_items // self._size
        return -(-recipe.epoch_items // self._size)

    def _start(self, nominal: int) -> tuple[int, int]:
        """Epoch and position at which a pass begins."""
        steps = self._epoch_steps
        if steps is None:
            return nominal, 0
        whole_epoch = self._steps()
        if not whole_epoch:
            raise ConfigError(
                "DataLoader: the dataset does not fill one batch on every rank, but .with_epoch() needs full batches",
                hint="lower the batch size, or use tail='fill'",
            )
        epoch, step = divmod(nominal * steps, whole_epoch)
        return epoch, step * self._stride

    @property
    def _rank(self) -> tuple[int, int]:
        return self._settings.ranks

    @property
    def _stride(self) -> int:
        """Items per step over all ranks."""
        if self._settings.ordering.batched or self._settings.iterates:
            return 1
        if self._settings.ordering.plain and self._dataset._recipe().mix is None:
            return self._rank[1] * self._size
        return self._info().stride

    def _nominal(self, epoch: int, position: int) -> int:
        """The pass that contains a place of the dataset's epochs."""
        steps = self._epoch_steps
        if steps is None:
            return epoch
        return (epoch * self._steps() - (-position // self._stride)) // steps

    def _left(self, epoch: int, position: int) -> int | None:
        """Steps from there to the end of the pass, or None: to the end of the epoch."""
        steps = self._epoch_steps
        if steps is None:
            return None
        return steps - (epoch * self._steps() - (-position // self._stride)) % steps

    def _rest(self, epoch: int, position: int) -> int | None:
        """Steps from there to the end of the epoch, or None: only the end of the stream tells."""
        items = self._items(epoch)
        if items is None:
            return None
        left = items - position
        return left // self._stride if self._settings.tail == "drop" else -(-left // self._stride)

    # State.

    def state_dict(self) -> dict[str, Any]:
        """The position of the training loop in the newest pass: plain JSON types, equal on every rank.

        It counts the batches that the loop was given, not those made ahead. A pass begins with its first batch, or with
        ``iter()`` if the pass before it has ended or was abandoned. The state can be loaded with another world size or
        batch size, and on another machine.
        """
        info, mix = self._info(), self._settings.mix
        pipeline = self._dataset._pipeline(info.pipeline, self._settings)
        if (on_device := self._settings.on_device) is not None:
            pipeline = on_device.pipeline(pipeline)
        seen, way = None, self._dataset._way(self._at, self._settings)
        at = self._standing()
        if at is not None:
            epoch, position, seen, way = at.epoch, at.position, at.seen, at.way
        else:
            epoch, position, _ = self._next_pass()
        state: dict[str, Any] = {
            "version": STATE_VERSION,
            "dataset": info.digest,
            "pipeline": mix.pipeline(pipeline) if isinstance(mix, Changes) else pipeline,
            "seed": self._settings.seed.value,
            "epoch": epoch,
            "position": position,
            "order": self._order(seen),
            **info.beside,
        }
        if self._settings.decoding is not None:
            state["decode_device"] = self._settings.decoding.state
        if isinstance(self._dataset, Own):
            state["python"] = self._dataset._code(self._settings)
        if way is not None:
            state["iterable"] = way.state(self.batch_size, self._rank)
        if self._at.skipped:
            state["skipped"] = [list(run) for run in self._at.skipped]
        return state

    def _order(self, seen: str | None = None) -> dict[str, Any]:
        """What states and receipts say about the order."""
        if not self._settings.ordering.walked:
            return self._info().order
        order: dict[str, Any] = {"sampler": type(given(self._sampler)).__name__}
        if seen is None:
            return order
        rank, world = self._settings.process
        return {**order, "seen": seen, **({"rank": rank} if world > 1 else {})}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """The next pass continues where the state was saved. If that was the end of an epoch, it yields nothing, once.
        Load the same state on every rank: ranks that begin at different places are a ConfigError.

        StateError if the state is of another dataset, other fields or transforms, another order, or a seed other than
        ``seed=`` or ``generator=`` gave; a seed that was not given is replaced by the state's. A state of the dataset
        that this one was packed from fits too, with a notice. A user's sampler is iterated up to the position when the
        pass begins; StateError then if it gives other ids. A state of another rank does not know this rank's.
        """
        seed = state_dict.get("seed") if isinstance(state_dict, Mapping) else None
        with self._settings.seed.gives_way(seed):
            mine = {**self.state_dict(), "epoch": None, "position": None, "order": self._order()}
            mine.pop("skipped", None)
            code, iterates = mine.pop("python", None), mine.pop("iterable", None) is not None
            if not isinstance(self._given, Dataset):
                compare_paths(state_dict, code is not None, self._settings.hands)
            compare(state_dict, mine, self._items, self._info())
        way = self._dataset._way(self._at, self._settings)
        if iterates:
            way = way.restored(state_dict.get("iterable"), self.batch_size, self._rank)
        if code is not None:
            warn_of_changes(state_dict.get("python"), code)
        self._at.restored = (state_dict["epoch"], state_dict["position"])
        self._at.decided = True
        if self._settings.ordering.walked:
            rank, _ = self._settings.process
            self._at.seen = state_dict["order"].get("seen")
            if self._at.seen is None and state_dict["position"]:
                self._at.seen = ""
            elif self._at.seen is not None and state_dict["order"].get("rank", rank) != rank:
                self._at.seen = ANOTHER_RANKS
        self._at.next_epoch = self._nominal(*self._at.restored)
        self._at.progress = Progress(*self._at.restored, restored=True, seen=self._at.seen)
        self._at.progress.way = self._at.way = way
        self._at.skipped = [list(run) for run in state_dict.get("skipped", [])]

    def _items(self, epoch: int) -> int | None:
        """Items in an epoch: places, or batches if the order makes them; None if only its end tells."""
        ordering = self._settings.ordering
        if self._settings.open_ended:
            return None
        if ordering.plain and self._dataset._recipe().mix is None:
            return self._info().samples
        return int(self._asked().ask("items", epoch=epoch))

    # What was delivered, and what is planned.

    def skip(self, steps: int) -> None:
        """Skips the next steps of the newest pass, as if they had been delivered; call it on every rank.

        Within a loop, the pass continues after them; at the end of a pass, or before any, the next one begins after
        them. The state records what was skipped.
        """
        steps = scalar(steps)
        if not whole(steps) or not 0 <= steps <= 1 << 32:
            raise ConfigError(f"DataLoader.skip: steps is {steps!r:.80}", hint="give a number of steps, 0 or more")
        if self._epoch_steps is not None:
            raise ConfigError("DataLoader.skip cannot be used with .with_epoch()", hint="leave .with_epoch() out")
        if self._settings.iterates:
            refuse(self, "DataLoader.skip", "call next() on the iterator, and drop the batch")
        at = self._standing()
        items = None if at is None else self._items(at.epoch)
        if at is None or at.restored or (items is not None and at.position >= items):
            if self._at.restored is None:
                self._at.restored = self._next_pass()[:2]
            at = Progress(*self._at.restored, restored=True, seen=self._at.seen)
            items = self._items(at.epoch)
        if at.restored and steps and steps == at.position // self._stride:
            _notice.say(
                f"DataLoader.skip({steps}): the loader continues after batch {steps} already, because a state was "
                f"loaded or because of an earlier skip; {steps} more are skipped"
            )
        end = at.position + steps * self._stride
        end = min(end, MAX_EPOCH if items is None else items)
        if end == at.position:
            return
        if at.restored and self._settings.ordering.walked:
            raise ConfigError(
                "DataLoader.skip: a sampler is iterated only after its pass has begun", hint="call skip() in the loop"
            )
        self._at.skipped = skipped(self._at.skipped, at.epoch, at.position, end)
        if at.restored:
            self._at.restored = (at.epoch, end)
            at.move(at.epoch, end)
            self._at.progress = at
            return
        at.jumped = at.position if at.jumped is None else at.jumped
        at.move(at.epoch, end)
        self._part(at, at.epoch, end)

    def receipt(self) -> dict[str, Any]:
        """What the loop on this rank has received in all passes since the loader was made, as plain JSON types: for
        every part of a pass its epoch, its range of places, and the sum of a hash of every (place, sample).

        Save it beside the state; ``verify_receipts`` adds up those of all ranks and resumed runs.
        """
        return {
            "version": VERSION,
            "dataset": self._info().digest,
            "seed": self._settings.seed.value,
            "order": self._order(),
            "parts": [part.told() for part in self._at.parts if not part.empty],
        }

    def explain(self, step: int) -> dict[str, Any]:
        """The contents of this rank's batch at a step of the current epoch (before any: of the next), and why.

        Returns {"epoch", "position", "rank", "world_size", "rows"}, and for a dataset of your own "python": who makes
        it. A row has "place", "sample", "valid", "file" (and "member" in a shard), and "choices": what each transform
        chose for every image field, such as the crop box; with "device": True if it is done on the device. With
        decode_device=, rows whose picture the device decodes have that on every step. A picture that the decoder
        refuses is made by the engine, which is not known here. "batch_transform" is what MixUp or CutMix chooses, such
        as "lam" and the box: each valid row is mixed with the valid row before it, and the first with the last. Steps
        are counted as in ``batch.step``. Nothing is delivered.
        """
        step = scalar(step)
        if not whole(step) or not 0 <= step <= 1 << 32:
            raise ConfigError(f"DataLoader.explain: step is {step!r:.80}", hint="give the number of a step, 0 or more")
        if self._settings.iterates:
            refuse(self, "DataLoader.explain", "look at the batches in the loop")
        if self._settings.ordering.walked:
            raise ConfigError(
                "DataLoader.explain: only the sampler knows the samples of a step", hint="use one of stoker's samplers"
            )
        at = self._standing() or Progress(*self._next_pass()[:2])
        first = -(-at.start // self._stride)  # the number of the pass's first step
        position = step * self._stride if step < first else at.start + (step - first) * self._stride
        items = self._items(at.epoch)
        if items is not None:
            left = items - at.start
            steps = first + (left // self._stride if self._settings.tail == "drop" else -(-left // self._stride))
            if step >= steps:
                raise ConfigError(
                    f"DataLoader.explain: epoch {at.epoch} has no step {step}",
                    hint=f"it has {many(steps, 'step')}: give "
                    + ("0" if steps == 1 else f"a number from 0 to {steps - 1}")
                    if steps
                    else "it has no steps",
                )
        found: dict[str, Any] = self._asked().ask("explain", epoch=at.epoch, **{"from": position})
        hands = self._settings.hands
        return {**found, "step": step, **({} if hands is None else {"python": hands.words()})}

    def shares(self) -> list[int] | None:
        """Samples taken from each dataset of a mixture so far in the current epoch, over all ranks; None if the dataset
        is not a mixture."""
        if self._dataset._recipe().mix is None:
            return None
        state = self.state_dict()
        found: list[int] = self._asked().ask("shares", epoch=state["epoch"], to=state["position"])
        return found
