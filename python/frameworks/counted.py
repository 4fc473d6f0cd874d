"""What each of two ranks is given and counts under stoker.hf; run by test_hugging_face_ranks.py, which reads what it
writes. It asserts nothing itself."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from test_hugging_face import N, Placed, Seeing, Stream, samples, settings, trainer_of, weights

import stoker.hf
from stoker import transforms as T

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, required=True)
out = parser.parse_args().out
told: dict[str, Any] = {}


class Backwards(stoker.hf.Trainer):
    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return range(N - 1, -1, -1)


def trained(name: str, data: Any = None, **more: Any) -> Any:
    trainer = trainer_of(out / name, data, **more)
    trainer.train()
    told[name] = trainer.model.seen
    return trainer


# Evaluations: of 21 samples, rank 1 has one fewer.
for name, held in {"rows": samples(21), "stream": Stream(21), "unsized": Stream(21, sized=False)}.items():
    for more in ({}, {"eval_use_gather_object": True}):
        trainer = trainer_of(out, held=held, compute_metrics=lambda found: {"rows": len(found.predictions)}, **more)
        scores = trainer.evaluate()
        predicted = trainer.predict(held)
        told[f"{name} {'objects' if more else 'tensors'}"] = {
            "loss": scores["eval_loss"],
            "rows": scores["eval_rows"],
            "labels": [int(label) for label in predicted.label_ids],
            "predictions": [float(one) for one in predicted.predictions],
        }
with torch.no_grad():
    x = torch.stack([one["x"] for one in samples(21)])
    told["expected"] = trainer.model.layer(x)[:, 0].tolist()

# Trainings.
trained("sampler", kind=Backwards, num_train_epochs=1)
trained("split", num_train_epochs=1, accelerator_config={"split_batches": True, "dispatch_batches": True})
trained("stream", Stream(), num_train_epochs=1)
pictures = stoker.ImageFolder(out / "photos", T.Compose([T.CenterCrop(8), T.ToTensor()]))
seeing = stoker.hf.Trainer(Seeing(), settings(out / "pictures", max_steps=3), train_dataset=pictures)
seeing.train()
told["pictures"] = {"labels": seeing.predict(pictures).label_ids.tolist(), "targets": pictures.targets}
whole = trained("placed", Placed(), num_train_epochs=2)
for step in (2, 4):
    again = trainer_of(out / "again", Placed())
    again.train(resume_from_checkpoint=str(out / "placed" / f"checkpoint-{step}"))
    told[f"again {step}"] = again.model.seen
    told[f"equal {step}"] = weights(again) == weights(whole)

(out / f"told-{whole.args.process_index}.json").write_text(json.dumps(told))
