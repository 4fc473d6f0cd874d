"""Every Python sample of the guide to frameworks runs unchanged, and resumes if it finds its own checkpoint."""

from __future__ import annotations

import os
import re
import runpy
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from accelerate.state import AcceleratorState, GradientState
from conftest import TOP, make_folder

TEXT = (TOP / "docs" / "guides" / "frameworks.md").read_text(encoding="utf-8")
SAMPLES = [
    pytest.param(match[1], id=f"line{TEXT.count(chr(10), 0, match.start()) + 1}")
    for match in re.finditer(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
]


def no_group() -> None:
    """Lightning and Accelerate leave their process group open, and Lightning its variables, for later tests too."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with the pictures that the samples speak of; and no process group or accelerator left behind."""
    make_folder(tmp_path / "data/train", 24)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "cache"))
    no_group()
    with mock.patch.dict(os.environ):
        yield
    no_group()
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs a sample with some names, as one rank if it wants ranks."""

    def run(sample: str, **names: Any) -> None:
        if "init_process_group" in sample:
            with socket.socket() as one:
                one.bind(("127.0.0.1", 0))
                port = one.getsockname()[1]
            where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1}
            for key, value in where.items():
                monkeypatch.setenv(key, str(value))
        exec(compile(sample, "sample", "exec"), {"__name__": "__main__", **names})

    return run


class Pictures(torch.nn.Module):
    """A model that wants pictures by the name that Hugging Face gives them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, pixel_values: Any, labels: Any) -> Any:
        logits = self.layer(pixel_values.mean((2, 3)))
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def of_hugging_face(sample: str, out: Path) -> dict[str, Any]:
    """What samples with a Trainer take from the script around them: as in examples/frameworks/hf_trainer.py."""
    import transformers

    script = runpy.run_path(str(TOP / "examples" / "frameworks" / "hf_trainer.py"))
    args = transformers.TrainingArguments(str(out), max_steps=2, use_cpu=True, disable_tqdm=True, report_to=[])
    if "pixel_values" in sample:
        return {"args": args, "model": Pictures()}
    texts = script["lines"](TOP / "docs" / "guides", 5)
    tokenizer = script["tokenizer_of"](texts["text"])
    train = texts.map(lambda batch: tokenizer(batch["text"], truncation=True, max_length=16), batched=True)
    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    config = transformers.BertConfig(vocab_size=len(tokenizer), num_labels=4, **small)
    model = transformers.BertForSequenceClassification(config)
    made = {"args": args, "model": model, "train": train, "held": train, "tokenizer": tokenizer}
    return {**made, "accuracy": script["accuracy"]}


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_sample_runs(sample: str, ran: Callable[..., None], tmp_path: Path) -> None:
    ran(sample, **(of_hugging_face(sample, tmp_path / "out") if "stoker.hf" in sample else {}))


class CutOffError(Exception):
    pass


def test_the_checkpoint_of_the_plain_loop_is_continued(ran: Callable[..., None]) -> None:
    """The sample, cut off in its sixth batch after a checkpoint in the fifth, and again."""
    (sample,) = [str(one.values[0]) for one in SAMPLES if "init_process_group" in str(one.values[0])]
    begin = "        images, labels = batch\n"
    steps: list[tuple[int, int]] = []

    def note(batch: Any) -> None:
        steps.append((batch.epoch, batch.step))
        if len(steps) == 6:
            raise CutOffError

    watched = sample.replace(begin, begin + "        note(batch)\n")
    with pytest.raises(CutOffError):
        ran(watched, note=note)
    no_group()
    ran(watched, note=note)
    assert steps == [(epoch, step) for epoch in range(2) for step in range(3)] + [(1, 2)]
