"""What trainers do to a loader once it passes for torch's, and what it answers.

show, again      libraries that make a loader anew from vars(loader): Lightning for predictions, sampler injections
answer           attributes that Accelerate reads of what it has prepared
before           Lightning's state of the loader that it has not loaded yet
begun, ended     Accelerate's GradientState knows which loader is in use
answer_skips     has accelerate.skip_first_batches, where a module holds it, ask a function of ours about our loaders
placing          Accelerate gives batches on its device
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from . import _notice
from ._errors import ConfigError
from ._position import Batches, Turns

if TYPE_CHECKING:
    from ._loader import DataLoader

# Attributes of torch's DataLoader that are properties here. Fabric's and Ray's wrappers copy vars(loader), and
# training loops read them there.
_PROPERTIES = ("dataset", "batch_size", "num_workers", "drop_last", "collate_fn")
_SAMPLERS = ("sampler", "batch_sampler")


class Made(float):
    """The timeout among vars(loader). A constructor that gets it was called with a loader's attributes, whatever else
    it got: a float that is not the default one is always passed on."""

    loader: Callable[[], DataLoader | None]


def show(loader: DataLoader) -> None:
    """Puts the attributes of torch's DataLoader into vars(loader), without a cycle of references."""
    shown: dict[str, Any] = {**loader._settings.torch, **{name: getattr(loader, name) for name in _PROPERTIES}}
    made = Made(shown["timeout"])
    made.loader = weakref.ref(loader)
    weak: Any = weakref.proxy(loader)
    shown.update(timeout=made, sampler=loader._sampler_of(weak), batch_sampler=loader._batches_of(weak))
    loader.__dict__.update(shown)


def hidden(loader: DataLoader) -> dict[str, Any]:
    """vars(loader) without them."""
    shown = {*loader._settings.torch, *_PROPERTIES, *_SAMPLERS}
    return {name: value for name, value in vars(loader).items() if name not in shown}


def again(keywords: Mapping[str, Any], defaults: Mapping[str, Any], dataset: Any) -> DataLoader | None:
    """The loader that these keywords were taken from, None if they are a user's. ConfigError if something changed one
    of them: what decides order, seed and ranks is not among a loader's attributes, so the result would be another
    stream."""
    sampler, batches, timeout = keywords["sampler"], keywords["batch_sampler"], keywords["timeout"]
    batches = getattr(batches, "_batch_sampler", batches)  # Lightning notes the ids of predictions
    inner = getattr(batches, "sampler", None)
    owners = [timeout.loader()] if isinstance(timeout, Made) else []
    owners += [getattr(one, "_loader", None) for one in (sampler, batches, inner) if isinstance(one, (Turns, Batches))]
    if not owners:
        return None
    owner: DataLoader | None = next((_itself(one) for one in owners if one is not None), None)
    if sampler is not None:
        same = _is_of(owner, sampler)
        changed = sampler
    elif batches is not None:
        same = _is_of(owner, inner if isinstance(batches, Batches) else batches) or _is_of(owner, inner)
        changed = batches if inner is None else inner
    else:
        same = owner is not None and owner._settings.iterates
        changed = None
    if not same:
        raise ConfigError(
            f"DataLoader: something makes this loader anew from its attributes, with another sampler"
            f"{'' if changed is None else ', a ' + type(changed).__name__}: its seed, its epochs and its state would "
            "be lost",
            hint=_instead(owner, changed),
        )
    assert owner is not None
    # A user's subclass may pass keywords that no attribute shows, such as seed=.
    usual = {**owner._keywords, **vars(owner), "shuffle": None}
    for name, value in keywords.items():
        free = name in _SAMPLERS or value is defaults[name] or (name == "shuffle" and not value)
        if not free and not _equal(value, usual.get(name)):
            raise ConfigError(
                f"DataLoader: something makes this loader anew from its attributes, with another {name}: {value!r:.80}",
                hint=f"make the loader with {name}= yourself",
            )
    if dataset is not owner.dataset:
        raise ConfigError(
            "DataLoader: something makes this loader anew from its attributes, with another dataset",
            hint="make a loader for that dataset yourself",
        )
    return owner


def _equal(value: Any, other: Any) -> bool:
    if value is other:
        return True
    try:
        same = value == other
        return bool(same.all() if hasattr(same, "all") else same)  # of an array, each number
    except (RuntimeError, ValueError):  # arrays of other shapes
        return False


def _instead(owner: Any, changed: Any) -> str:
    """What to do where another sampler, or none, was put into a loader."""
    given = None if owner is None else owner._sampler
    name = type(given).__name__
    if type(changed).__name__ == "SequentialSampler" and given is None:
        return "for Lightning's overfit_batches, make the loader with shuffle=False"
    if name == "WeightedRandomSampler":
        return (
            "pass weights= (or balanced=True) to stoker.DataLoader in place of the sampler, and stoker draws once for "
            "all ranks"
        )
    if name == "RandomSampler":
        return "pass shuffle=True in place of the sampler, and stoker deals samples to the ranks"
    if given is not None:
        return (
            f"if your {name} deals samples to the ranks itself, pass use_distributed_sampler=False to Lightning's "
            "Trainer or Fabric's setup_dataloaders; otherwise leave it out, and stoker deals them"
        )
    return "pass the loader on as it is: stoker deals samples to the ranks"


def _itself(loader: Any) -> Any:
    """The loader, also of a proxy."""
    return loader.close.__self__


def _is_of(loader: Any, sampler: Any) -> bool:
    """Whether a sampler, or a batch sampler, is the loader's."""
    if loader is None or sampler is None:
        return False
    if isinstance(sampler, (Turns, Batches)):
        return sampler._loader is not None and _itself(sampler._loader) is loader
    return sampler is loader.sampler or sampler is loader.batch_sampler


def seeds_workers(function: Any) -> bool:
    """Whether a worker_init_fn is the one that Lightning assigns after seed_everything(workers=True). It is not needed:
    what is random has its own seed for every sample."""
    return isinstance(function, partial) and getattr(function.func, "__name__", "") == "pl_worker_init_function"


def before(loader: DataLoader) -> None:
    """A pass is about to begin. Lightning loads the states of loaders where it makes its iterators. If the module asks
    for trainer.estimated_stepping_batches, as schedules do, it has made them before it reads the checkpoint, and the
    states wait for ever: the epoch would begin again. So they are loaded here, by Lightning's own function."""
    if "pytorch_lightning" not in sys.modules and "lightning.pytorch" not in sys.modules:
        return
    frame: Any = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "advance" and type(loop := frame.f_locals.get("self")).__name__ == "_FitLoop":
            if getattr(loop, "_combined_loader_states_to_load", None):
                loaders = getattr(getattr(loop, "_combined_loader", None), "flattened", ())
                if any(one is loader for one in loaders):
                    loop._load_combined_loader_states()
            return
        frame = frame.f_back


# Accelerate. ``prepare`` passes a loader on if it seems to be prepared, and notes on it that it was; then the loader
# does what Accelerate's own does.

_PREPARED = "_is_accelerate_prepared"


def prepared(loader: Any) -> bool:
    """Whether Accelerate has prepared it."""
    return _PREPARED in vars(loader)


def begun(loader: DataLoader) -> None:
    """The loader is in use."""
    if (states := _states(loader)) is not None:
        gradients = states.GradientState()
        gradients._remove_dataloader(loader)  # an abandoned pass
        gradients._add_dataloader(loader)


def ended(loader: DataLoader) -> None:
    """Its pass has ended."""
    if (states := _states(loader)) is not None:
        states.GradientState()._remove_dataloader(loader)


def placing(loader: DataLoader) -> Callable[[Any], Any] | None:
    """What moves its batches to Accelerate's device; None if there is nothing to move."""
    states = _states(loader)
    if states is None or (device := states.PartialState().device).type == "cpu":
        return None
    target = loader._settings.target
    if target is not None and target.device in (str(device), device.type):
        return None  # they are there
    send = sys.modules["accelerate.utils"].send_to_device
    return partial(send, device=device, non_blocking=loader._settings.pin)


def _states(loader: DataLoader) -> Any:
    return sys.modules.get("accelerate.state") if prepared(loader) else None


def at_end(loader: Any) -> bool:
    """Whether the loop has the last batch of an epoch: Accelerate's accumulate() steps then. False if only the end of
    the stream tells."""
    at = loader._at.progress
    if at is None or at.restored:
        return False
    passage = at.iterator() if at.iterator is not None else None
    if passage is not None and passage._left is not None:
        return bool(passage._left == 0)
    rest = loader._rest(at.epoch, at.position)
    return rest is not None and bool(rest <= 0)


def remainder(loader: DataLoader) -> int:
    """Samples in the last global batch, which gather_for_metrics keeps: it concatenates the ranks' rows, and drops what
    follows. 0: all. -1: it would drop the wrong ones."""
    settings, at = loader._settings, loader._at.progress
    _, world = loader._rank
    items = None if at is None else loader._items(at.epoch)
    if at is None or items is None or settings.ordering.batched or settings.iterates:
        return -1
    last = (items - at.start) % loader._stride
    if settings.tail == "drop" or last == 0:
        return 0
    if not settings.ordering.plain and settings.ordering.batch:  # items are not samples
        return -1
    rows = loader._size if settings.tail == "fill" else -(-last // world)
    if world * rows == last:
        return 0
    if world == 1 or (rows - 1) * world + world - 2 < last:  # padding is at the end of the last rank's rows only
        return last
    _notice.say(
        "Accelerate's gather_for_metrics cannot leave out the padding of the last batch, which is spread over the "
        f"{world} ranks: leave out the rows that are not batch.valid"
    )
    return -1


def answer_skips(module: Any, ours: Callable[[DataLoader, int], Any]) -> None:
    """Replaces a module's skip_first_batches, which makes another loader of a loader's attributes: ``ours`` answers for
    loaders of stoker's, what was there for all others. Of several calls for a module the last one's answers hold."""
    theirs = getattr(module, "skip_first_batches", None)
    if theirs is None or getattr(theirs, "_ours", None) is ours:
        return

    @wraps(theirs)
    def skip_first_batches(dataloader: Any, num_batches: int = 0) -> Any:
        from ._loader import DataLoader

        return (ours if isinstance(dataloader, DataLoader) else theirs)(dataloader, num_batches)

    skip_first_batches._ours = ours  # type: ignore[attr-defined]
    module.skip_first_batches = skip_first_batches


def _skipped(loader: DataLoader, batches: int) -> DataLoader:
    """The loader, after so many batches of its epoch: load_state may have put it there already."""
    state = loader.state_dict()
    done = state["position"] // loader._stride
    if done and done != batches:
        raise ConfigError(
            f"accelerate.skip_first_batches: the loader is after {done} batches of epoch {state['epoch']}, and "
            f"{batches} are to be skipped",
            hint="load_state has put the loader where it was: leave skip_first_batches out",
        )
    if not done:
        loader.skip(batches)
    return loader


def _prepare(loader: DataLoader) -> bool:
    """Accelerate is about to prepare a loader, so a script may ask it to skip batches. One that has imported that
    function by name gets an error."""
    for name in ("accelerate", "accelerate.accelerator", "accelerate.data_loader"):
        answer_skips(sys.modules.get(name), _skipped)
    return True


_ANSWERS: dict[str, Callable[[DataLoader], Any]] = {
    _PREPARED: _prepare,
    "use_stateful_dataloader": lambda loader: True,  # save_state and load_state call state_dict and load_state_dict
    "end_of_dataloader": at_end,
    "remainder": remainder,
}


def answer(loader: DataLoader, name: str) -> Any:
    """What Accelerate reads of a loader; AttributeError for any other name."""
    if name not in _ANSWERS:
        raise AttributeError(name)
    return _ANSWERS[name](loader)
