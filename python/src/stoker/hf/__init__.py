"""Hugging Face's Trainer with stoker's loaders: ``import stoker.hf``; needs transformers and accelerate.

Trainer        transformers.Trainer, whose training, evaluation and test loaders are stoker's
TrainerMixin   the same for other Trainers: class Mine(stoker.hf.TrainerMixin, transformers.Seq2SeqTrainer)
StateCallback  keeps the loader's state in each checkpoint; the mixin adds it by itself

>>> trainer = stoker.hf.Trainer(model=model, args=args, train_dataset=train, eval_dataset=held, data_collator=collator)
>>> trainer.train(resume_from_checkpoint=True)

The Trainer takes what it would have taken otherwise: the dataset, the collator and the TrainingArguments as they are.
A resume goes on with the next batch, and neither reads nor drops those before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .._errors import ConfigError

try:
    import accelerate  # noqa: F401
    import transformers
    from transformers import trainer as _theirs
except ImportError as error:
    raise ImportError(
        f"stoker.hf needs transformers and accelerate: {error} (pip install transformers accelerate)", name=error.name
    ) from error

from .._loader import DataLoader
from .._trainers import answer_skips
from ._count import Counted
from ._loaders import Share, make, refuse
from ._names import Names
from ._state import StateCallback, skipped

__all__ = ["StateCallback", "Trainer", "TrainerMixin"]

if not hasattr(transformers.Trainer, "_get_dataloader"):
    raise ImportError(f"stoker.hf needs a newer transformers than {transformers.__version__}: 4.53 or 5")

# The Trainer resumes by accelerate.skip_first_batches, which makes another DataLoader of a loader's attributes. The
# Trainer's module is told another function by that name, which answers for stoker's loaders; others go to Accelerate.
# Subclasses cannot do that: the call is in the middle of a method of three hundred lines.
answer_skips(_theirs, skipped)

if TYPE_CHECKING:
    from transformers import Trainer as _Base
else:
    _Base = object


class TrainerMixin(_Base):  # type: ignore[misc]
    """Gives a Trainer stoker's loaders; it comes first among the bases.

    Of TrainingArguments, the loaders follow ``per_device_train_batch_size``, ``per_device_eval_batch_size``,
    ``dataloader_*``, ``remove_unused_columns``, ``train_sampling_strategy`` (``group_by_length``), ``data_seed`` or
    ``seed``, and ``split_batches`` of ``accelerator_config``. ``dataloader_num_workers=0`` leaves the number to stoker:
    all cores for what the engine reads, the training process for Python's datasets.

    Methods that you override (``get_train_dataloader``, ``get_eval_dataloader``) may return a ``stoker.DataLoader`` of
    any kind: states, evaluation and names of inputs are the same for it.
    """

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._stoker_names = Names(self)
        self._stoker_loader: DataLoader[Any] | None = None  # of the training that runs
        given = [one for one in self.callback_handler.callbacks if isinstance(one, StateCallback)]
        self._stoker_state = given[0] if given else StateCallback()
        if not given:
            self.add_callback(self._stoker_state)

    # Loaders.

    def _get_dataloader(
        self,
        dataset: Any,
        description: str,
        batch_size: int,
        sampler_fn: Any = None,
        is_training: bool = False,
        dataloader_key: str | None = None,
    ) -> Any:
        refuse(self)
        made = make(self, dataset, description, batch_size, is_training)
        if dataloader_key is not None and self.args.dataloader_persistent_workers:
            self._eval_dataloaders = {**getattr(self, "_eval_dataloaders", {}), dataloader_key: made}
        return made

    def num_examples(self, dataloader: Any) -> int:
        """Samples of a loader's dataset, over all ranks."""
        dataset = getattr(dataloader, "dataset", None)
        if isinstance(dataset, Share):
            dataloader = _Over(dataset.dataset, dataloader)
        found: int = super().num_examples(dataloader)
        return found

    # Training.

    def set_initial_training_values(self, args: Any, dataloader: Any, *more: Any) -> Any:
        self._stoker_loader = dataloader if isinstance(dataloader, DataLoader) else None
        self._stoker_state.begin(self._stoker_loader)
        return super().set_initial_training_values(args, dataloader, *more)

    def get_batch_samples(self, epoch_iterator: Iterator[Any], *more: Any, **keywords: Any) -> Any:
        return super().get_batch_samples(self._named(epoch_iterator, self._stoker_loader), *more, **keywords)

    def _named(self, batches: Iterable[Any], loader: DataLoader[Any] | None) -> Iterator[Any]:
        return iter(batches) if loader is None else (self._stoker_names(loader, batch) for batch in batches)

    def _init_training_state(
        self, max_steps: Any, steps_per_epoch: Any, epochs: Any, resume_from_checkpoint: Any, trial: Any
    ) -> tuple[int, int]:
        epoch, steps = super()._init_training_state(max_steps, steps_per_epoch, epochs, resume_from_checkpoint, trial)
        if resume_from_checkpoint is None or self._stoker_loader is None or self.args.ignore_data_skip:
            return epoch, steps
        if not self.state.global_step:  # only weights were loaded
            return epoch, steps
        # The loader's own place counts: it is right with another world size or batch size too, where the Trainer's
        # division of its steps is not.
        return self._stoker_state.resume(self._stoker_loader, resume_from_checkpoint, self.args, epoch, steps)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> Any:
        self._stoker_state.checkpoint = checkpoint  # for transformers 4, which has no _init_training_state
        return super()._load_optimizer_and_scheduler(checkpoint)

    def _save_rng_state(self, output_dir: str) -> Any:
        found = super()._save_rng_state(output_dir)
        if self._stoker_loader is not None:  # before the checkpoint is complete, and before it is pushed
            self._stoker_state.write(self._stoker_loader, output_dir, self.args, self.state)
        return found

    # Evaluation.

    def evaluation_loop(self, dataloader: Any, *args: Any, **keywords: Any) -> Any:
        """Of a loader of stoker's, padding is neither evaluated nor counted, on any number of ranks."""
        if not isinstance(dataloader, DataLoader):
            return super().evaluation_loop(dataloader, *args, **keywords)
        before = self.__dict__["gather_function"]
        counted = Counted(dataloader, self, self._stoker_names)
        self.gather_function = counted.gather
        try:
            return super().evaluation_loop(counted, *args, **keywords)
        finally:
            self.gather_function = before

    def prediction_loop(self, dataloader: Any, *args: Any, **keywords: Any) -> Any:
        """Of transformers 4 with ``use_legacy_prediction_loop``."""
        if isinstance(dataloader, DataLoader):
            raise ConfigError("use_legacy_prediction_loop would count padding", hint="leave it out")
        return super().prediction_loop(dataloader, *args, **keywords)


class _Over:
    """A loader, of whose dataset this is all."""

    def __init__(self, dataset: Any, loader: Any) -> None:
        self.dataset = dataset
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)


class Trainer(TrainerMixin, transformers.Trainer):  # type: ignore[misc]
    """transformers.Trainer with stoker's loaders; see TrainerMixin."""
