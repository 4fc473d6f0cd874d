"""stoker.hf under the real Trainer, in this process: what it trains on, where it goes on, what it counts.

Two processes, kills and text are in test_hugging_face_ranks.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy
import pytest
import torch
import transformers

import stoker
import stoker.hf
from stoker import transforms as T

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from conftest import make_folder

N, SIZE, STEPS = 22, 4, 6  # samples, samples in a batch, batches in an epoch

warnings.filterwarnings("ignore")
os.environ.update(CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1")
datasets.disable_progress_bars()


class Net(torch.nn.Module):
    """Notes the numbers of the samples that it is trained on. It drops out, so that equal weights are equal draws."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(3, 1)
        self.drop = torch.nn.Dropout(0.5)
        self.seen: list[list[int]] = []
        self.judged: list[list[int]] = []

    def forward(self, x: Any, labels: Any = None, number: Any = None) -> Any:
        if number is not None:
            (self.seen if self.training else self.judged).append(number.tolist())
        found = self.layer(self.drop(x))[:, 0]
        return {"loss": ((found - labels) ** 2).mean(), "logits": found}


def samples(count: int = N) -> list[dict[str, Any]]:
    draw = torch.Generator().manual_seed(3)
    return [{"x": torch.rand(3, generator=draw), "labels": float(i), "number": i} for i in range(count)]


class Stream(torch.utils.data.IterableDataset[Any]):
    """Samples one after another."""

    def __init__(self, count: int = N, sized: bool = True) -> None:
        self.rows, self.sized = samples(count), sized

    def __iter__(self) -> Iterator[Any]:
        yield from self.rows

    def __len__(self) -> int:
        if not self.sized:
            raise TypeError("endless, for all one knows")
        return len(self.rows)


class Placed(Stream):
    """The same, which knows where it is."""

    def __init__(self, count: int = N, sized: bool = True) -> None:
        super().__init__(count, sized)
        self.at = 0

    def __iter__(self) -> Iterator[Any]:
        begin, self.at = self.at, 0
        for i in range(begin, len(self.rows)):
            self.at = i + 1
            yield self.rows[i]
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


def settings(out: Path, **more: Any) -> transformers.TrainingArguments:
    usual: dict[str, Any] = {
        "per_device_train_batch_size": SIZE,
        "per_device_eval_batch_size": SIZE,
        "num_train_epochs": 2,
        "save_steps": 1,
        "seed": 5,
        "learning_rate": 0.1,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "logging_strategy": "no",
        "dataloader_pin_memory": False,
    }
    return transformers.TrainingArguments(str(out), **{**usual, **more})


def trainer_of(out: Path, data: Any = None, kind: Any = stoker.hf.Trainer, held: Any = None, **more: Any) -> Any:
    args = settings(out, **{key: value for key, value in more.items() if key not in ("callbacks", "compute_metrics")})
    given = {key: more[key] for key in ("callbacks", "compute_metrics") if key in more}
    return kind(Net(), args, train_dataset=samples() if data is None else data, eval_dataset=held, **given)


def weights(trainer: Any) -> list[float]:
    return [float(x) for one in trainer.model.parameters() for x in one.detach().flatten()]


def flat(batches: list[list[int]]) -> list[int]:
    return [i for batch in batches for i in batch]


def order(epoch: int, shuffle: bool = True) -> list[list[int]]:
    """The ids of an epoch's batches, of a loader that was made by hand."""
    loader: Any = stoker.DataLoader(list(range(N)), SIZE, shuffle=shuffle, seed=5)
    loader.set_epoch(epoch)
    return [batch.tolist() for batch in loader]


# What is trained on.


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, 2 * STEPS),
        ({"max_steps": STEPS + 2}, STEPS + 2),
        ({"num_train_epochs": 1.5}, STEPS + STEPS // 2),
        (
            {"dataloader_num_workers": 2, "dataloader_prefetch_factor": 3, "dataloader_persistent_workers": True},
            2 * STEPS,
        ),
    ],
)
def test_epochs_are_those_of_the_loader(more: dict[str, Any], expected: int, tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, **more)
    trainer.train()
    assert trainer.model.seen == (order(0) + order(1))[:expected]
    assert isinstance(trainer.get_train_dataloader(), stoker.DataLoader)


def test_settings_reach_the_loader(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, data_seed=11, dataloader_drop_last=True, per_device_train_batch_size=8)
    loader = trainer.get_train_dataloader()
    assert (loader.batch_size, loader.drop_last, len(loader)) == (8, True, N // 8)
    assert loader.state_dict()["seed"] == 11
    ordered = trainer_of(tmp_path, train_sampling_strategy="sequential").get_train_dataloader()
    assert ordered.state_dict()["order"] == {"shuffle": "none"}
    split = trainer_of(tmp_path, accelerator_config={"split_batches": True}).get_train_dataloader()
    assert split.batch_size == SIZE
    with pytest.raises(stoker.ConfigError, match="batch_rebalance"):
        trainer_of(tmp_path, [{"input_ids": [1]}], train_sampling_strategy="batch_rebalance").get_train_dataloader()


def test_samplers_of_a_subclass(tmp_path: Path) -> None:
    class Mine(stoker.hf.Trainer):
        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            return range(N - 1, -1, -1)

    trainer = trainer_of(tmp_path, kind=Mine, num_train_epochs=1)
    trainer.train()
    assert flat(trainer.model.seen) == [*range(N - 1, -1, -1)]


# Where it goes on.


@pytest.mark.parametrize("accumulated", [1, 4])
def test_every_checkpoint_resumes(accumulated: int, tmp_path: Path) -> None:
    more: dict[str, Any] = {"gradient_accumulation_steps": accumulated, "num_train_epochs": 2}
    whole = trainer_of(tmp_path, **more)
    whole.train()
    updates = -(-STEPS // accumulated)
    for step in range(1, 2 * updates):
        folder = tmp_path / f"checkpoint-{step}"
        epoch, done = divmod(step, updates)
        if done:  # at the end of an epoch a state is of either
            state = json.loads((folder / "stoker_state.json").read_text())
            assert (state["epoch"], state["position"]) == (epoch, done * accumulated * SIZE)
        again = trainer_of(tmp_path / "again", **more)
        again.train(resume_from_checkpoint=str(folder))
        assert again.model.seen == whole.model.seen[epoch * STEPS + done * accumulated :], step
        assert weights(again) == weights(whole), step
        assert again.state.global_step == whole.state.global_step
        assert again.state.epoch == whole.state.epoch


def test_ignore_data_skip_begins_the_epoch_again(tmp_path: Path) -> None:
    trainer_of(tmp_path, max_steps=STEPS + 2).train()
    again = trainer_of(tmp_path / "again", max_steps=2 * STEPS, ignore_data_skip=True)
    again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{STEPS + 2}"))
    assert again.model.seen == order(1)[: STEPS - 2]  # to the last step


def test_another_batch_size_goes_on_with_the_same_samples(tmp_path: Path) -> None:
    trainer_of(tmp_path, max_steps=STEPS + 3).train()
    again = trainer_of(tmp_path / "again", per_device_train_batch_size=6, max_steps=STEPS + 5)
    again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{STEPS + 3}"))
    assert flat(again.model.seen) == flat(order(1))[3 * SIZE :]


def test_a_stop_between_the_batches_of_a_step(tmp_path: Path) -> None:
    """All batches of a step are fetched at once: those after the last whole step come again."""

    class Stop(transformers.TrainerCallback):
        def on_substep_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 1:
                control.should_training_stop = control.should_save = True

    more: dict[str, Any] = {"gradient_accumulation_steps": 2, "num_train_epochs": 1}
    trainer_of(tmp_path, callbacks=[Stop()], save_strategy="no", **more).train()
    state = json.loads((tmp_path / "checkpoint-1" / "stoker_state.json").read_text())
    assert state["position"] == 2 * SIZE
    again = trainer_of(tmp_path / "again", **more)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    assert again.model.seen == order(0)[2:]


def test_an_epoch_that_a_callback_ended_goes_on(tmp_path: Path) -> None:
    """The Trainer's arithmetic takes the batch after it for one of the same epoch."""

    class Cut(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_epoch_stop = state.global_step == 2

    whole = trainer_of(tmp_path, callbacks=[Cut()])
    whole.train()
    assert whole.model.seen == order(0)[:2] + order(1)
    again = trainer_of(tmp_path / "again")
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert again.model.seen == order(1)[1:]


def test_checkpoints_without_a_state(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer_of(tmp_path, kind=transformers.Trainer, max_steps=STEPS + 2).train()
    folder = str(tmp_path / f"checkpoint-{STEPS + 2}")
    again = trainer_of(tmp_path / "again")
    again.train(resume_from_checkpoint=folder)
    assert again.model.seen == order(1)[2:]
    assert "has no state of the loader" in caplog.text
    with pytest.raises(stoker.StateError, match="has no state of the loader"):
        trainer_of(tmp_path / "third", Stream()).train(resume_from_checkpoint=folder)


def test_checkpoints_of_the_model_alone(tmp_path: Path) -> None:
    trainer_of(tmp_path, max_steps=STEPS + 2, save_only_model=True).train()
    again = trainer_of(tmp_path / "again")
    again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{STEPS + 2}"))
    assert again.model.seen == order(1)[2:]


def test_trainings_one_after_another(tmp_path: Path) -> None:
    """A second one begins at the beginning, also after one that was resumed."""
    trainer = trainer_of(tmp_path)
    trainer.train()
    trainer.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{STEPS + 1}"))
    trainer.train()
    assert trainer.model.seen == order(0) + order(1) + order(1)[1:] + order(0) + order(1)


def test_states_that_do_not_fit(tmp_path: Path) -> None:
    trainer_of(tmp_path, max_steps=2).train()
    with pytest.raises(stoker.StateError, match="seed"):
        trainer_of(tmp_path / "again", seed=6).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    with pytest.raises(stoker.StateError, match="dataset"):
        trainer_of(tmp_path / "third", samples(30)).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


def test_hugging_faces_trainer_with_the_callback(tmp_path: Path) -> None:
    class Mine(transformers.Trainer):
        def get_train_dataloader(self) -> Any:
            return stoker.DataLoader(samples(), SIZE, shuffle=True, seed=5)

    more: dict[str, Any] = {"kind": Mine, "gradient_accumulation_steps": 2}
    whole = trainer_of(tmp_path, callbacks=[stoker.hf.StateCallback()], **more)
    whole.train()
    assert whole.model.seen == order(0) + order(1)
    for step in (1, 3, 4):
        for callbacks in ([stoker.hf.StateCallback(tmp_path / f"checkpoint-{step}")], []):
            again = trainer_of(tmp_path / "again", callbacks=callbacks, **more)
            again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
            assert again.model.seen == whole.model.seen[2 * step :]
            assert weights(again) == weights(whole)
    wrong = trainer_of(
        tmp_path / "again",
        callbacks=[stoker.hf.StateCallback(tmp_path / "checkpoint-4")],
        kind=Mine,
    )
    with pytest.raises(stoker.StateError, match="after 2 batches of epoch 1"):
        wrong.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))


# Datasets that are iterated.


@pytest.mark.parametrize("kind", [Stream, Placed])
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("sized", [True, False])
def test_streams(kind: type[Stream], workers: int, sized: bool, tmp_path: Path) -> None:
    more: dict[str, Any] = {"max_steps": 2 * STEPS, "dataloader_num_workers": workers}
    whole = trainer_of(tmp_path, kind(sized=sized), **more)
    whole.train()
    assert whole.model.seen == order(0, shuffle=False) * 2
    for step in (2, STEPS, STEPS + 3):
        again = trainer_of(tmp_path / "again", kind(sized=sized), **more)
        again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
        assert again.model.seen == whole.model.seen[step:], step
        assert weights(again) == weights(whole), step


def test_shuffled_streams_of_datasets(tmp_path: Path) -> None:
    """They shuffle by the epoch, which the loader tells them."""

    def stream() -> Any:
        rows = datasets.Dataset.from_list([{**one, "x": one["x"].tolist()} for one in samples()])
        return rows.to_iterable_dataset(num_shards=3).shuffle(seed=1, buffer_size=10)

    whole = trainer_of(tmp_path, stream(), max_steps=2 * STEPS)
    whole.train()
    first, second = whole.model.seen[:STEPS], whole.model.seen[STEPS:]
    assert sorted(flat(first)) == sorted(flat(second)) == [*range(N)]
    assert first != second
    again = trainer_of(tmp_path / "again", stream(), max_steps=2 * STEPS)
    again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{STEPS + 2}"))
    assert again.model.seen == second[2:]


# Evaluation.


@pytest.mark.parametrize("held", [samples(), Stream(), Stream(sized=False)], ids=["rows", "stream", "unsized"])
def test_an_evaluation_counts_every_sample_once(held: Any, tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, held=held, compute_metrics=lambda found: {"rows": len(found.predictions)})
    found = trainer.evaluate()
    assert found["eval_rows"] == N
    assert found["eval_loss"] == trainer_evaluated(trainer)
    x = torch.stack([one["x"] for one in samples()])
    predicted = trainer.predict(held)
    assert numpy.allclose(predicted.predictions, trainer.model.layer(x)[:, 0].detach().numpy(), rtol=1e-5)
    assert predicted.label_ids.tolist() == [*range(N)]


def test_metrics_of_batches(tmp_path: Path) -> None:
    rows: list[int] = []
    last: list[bool] = []

    def metrics(found: Any, compute_result: bool) -> dict[str, Any]:
        rows.append(len(found.predictions))
        last.append(compute_result)
        return {"rows": sum(rows)}

    trainer = trainer_of(tmp_path, held=samples(), compute_metrics=metrics, batch_eval_metrics=True)
    assert trainer.evaluate()["eval_rows"] == N
    assert last == [False] * (STEPS - 1) + [True]


def test_evaluations_within_a_training(tmp_path: Path) -> None:
    """They do not move the training, nor what it resumes with; the best model comes back at the end."""
    more: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": 2, "save_steps": 2, "load_best_model_at_end": True}
    trainer = trainer_of(tmp_path, held={"a": samples(6), "b": Stream(5)}, metric_for_best_model="a_loss", **more)
    trainer.train()
    assert trainer.model.seen == order(0) + order(1)
    assert trainer.state.best_model_checkpoint is not None
    assert trainer.model.judged[:4] == [[0, 1, 2, 3], [4, 5], [0, 1, 2, 3], [4]]
    again = trainer_of(tmp_path, held={"a": samples(6), "b": Stream(5)}, metric_for_best_model="a_loss", **more)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))
    assert again.model.seen == order(1)[2:]
    assert weights(again) == weights(trainer)


def test_another_trainer_with_the_mixin(tmp_path: Path) -> None:
    """Seq2SeqTrainer gathers in its own way, which counts padding."""

    class Mine(stoker.hf.TrainerMixin, transformers.Seq2SeqTrainer):
        pass

    args = transformers.Seq2SeqTrainingArguments(**{**settings(tmp_path).to_dict(), "predict_with_generate": False})
    made = {"train_dataset": samples(), "eval_dataset": samples()}
    trainer = Mine(Net(), args, compute_metrics=lambda found: {"rows": len(found.predictions)}, **made)
    trainer.train()
    assert trainer.model.seen == order(0) + order(1)
    assert trainer.evaluate()["eval_rows"] == N
    assert trainer.evaluate()["eval_loss"] == trainer_evaluated(trainer)


def trainer_evaluated(trainer: Any) -> Any:
    """The mean loss over all samples."""
    with torch.no_grad():
        found = trainer.model.layer(torch.stack([one["x"] for one in samples()]))[:, 0]
        return pytest.approx(float(((found - torch.arange(N)) ** 2).mean()), rel=1e-5)


# stoker's own datasets.


class Seeing(torch.nn.Module):
    main_input_name = "pixel_values"

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(192, 4)

    def forward(self, pixel_values: Any = None, labels: Any = None, **_: Any) -> Any:
        logits = self.layer(pixel_values.flatten(1))
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> stoker.ImageFolder[Any, Any, Any]:
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "cache"))
    return stoker.ImageFolder(make_folder(tmp_path / "photos", 10), T.Compose([T.CenterCrop(8), T.ToTensor()]))


def test_pictures_and_labels_get_their_names(pictures: Any, tmp_path: Path) -> None:
    for data in (
        pictures,
        pictures.select("image", "label"),
        pictures.map(lambda image, label: {"pixel_values": image, "label": label, "path": "unused"}),
    ):
        trainer = stoker.hf.Trainer(Seeing(), settings(tmp_path, max_steps=4), train_dataset=data, eval_dataset=data)
        loader = trainer.get_train_dataloader()
        assert loader.batch_size == SIZE
        trainer.train()
        found = trainer.predict(data)
        assert found.label_ids.tolist() == pictures.targets
    other = pictures.select(stoker.Field("picture", source="image"))
    trainer = stoker.hf.Trainer(Seeing(), settings(tmp_path, max_steps=1), train_dataset=other)
    with pytest.raises(stoker.ConfigError, match=r"picture.*pixel_values"):
        trainer.train()


def test_a_loader_of_the_users(pictures: Any, tmp_path: Path) -> None:
    class Mine(stoker.hf.Trainer):
        def get_train_dataloader(self) -> Any:
            return stoker.DataLoader(pictures, 3, shuffle=True, seed=8)

        def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
            return stoker.DataLoader(pictures, 4)

    whole = Mine(Seeing(), settings(tmp_path, num_train_epochs=2), eval_dataset=pictures)
    torch.manual_seed(1)
    begin = {key: value.clone() for key, value in whole.model.state_dict().items()}
    whole.train()
    assert json.loads((tmp_path / "checkpoint-6" / "stoker_state.json").read_text())["position"] == 6
    again = Mine(Seeing(), settings(tmp_path / "again", num_train_epochs=2), eval_dataset=pictures)
    again.model.load_state_dict(begin)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
    assert weights(again) == weights(whole)
    assert whole.predict(pictures).label_ids.tolist() == pictures.targets


def test_lengths(tmp_path: Path) -> None:
    """Batches of similar lengths; every sample once."""
    rows = [{"input_ids": [1] * (1 + 7 * i % 40), "labels": i, "length": 1 + 7 * i % 40} for i in range(40)]
    data = datasets.Dataset.from_list(rows)
    for given in (data, data.remove_columns("length"), [dict(row) for row in rows]):
        args = {"remove_unused_columns": False, "train_sampling_strategy": "group_by_length"}
        trainer = stoker.hf.Trainer(Seeing(), settings(tmp_path, **args), train_dataset=given, data_collator=list)
        batches = [[row["labels"] for row in batch] for batch in trainer.get_train_dataloader()]
        assert sorted(flat(batches)) == [*range(40)]
        spread = [max(x) - min(x) for x in ([rows[i]["length"] for i in batch] for batch in batches)]
        assert max(spread) <= 4


AFTER_PREPARE = """
import accelerate, stoker
loader = stoker.DataLoader(list(range(12)), 2, num_workers=0, shuffle=True, seed=1)
loader.set_epoch(1)
whole = [batch.tolist() for batch in loader]
accelerate.Accelerator(cpu=True).prepare(loader)
import stoker.hf
from transformers import trainer
skipping = trainer.skip_first_batches(loader, 2)
skipping.set_epoch(1)
assert [batch.tolist() for batch in skipping] == whole[2:]
"""


def test_the_trainer_skips_in_its_own_way_after_accelerate_has_prepared() -> None:
    """It sets the epoch after it has asked to skip; Accelerate's scripts do so before."""
    subprocess.run([sys.executable, "-c", AFTER_PREPARE], check=True, timeout=120)
