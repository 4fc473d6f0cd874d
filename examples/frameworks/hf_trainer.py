"""Hugging Face's Trainer with stoker's loaders: a small BERT learns from which guide a line of text comes.

The only line of stoker's is ``stoker.hf.Trainer`` in place of ``transformers.Trainer``. The datasets, the collator and
the TrainingArguments are those of any other script. Run it, kill it, and run it again with --resume: it goes on with
the batch after the checkpoint.

    python examples/frameworks/hf_trainer.py --out run
    torchrun --nproc-per-node 2 examples/frameworks/hf_trainer.py --out run --cpu
    torchrun --nproc-per-node 2 examples/frameworks/hf_trainer.py --out run --cpu --resume
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import datasets
import numpy
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import stoker.hf

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"


def lines(folder: Path, most: int) -> datasets.Dataset:
    """The first lines of every text in a folder, and the number of the text that each is from."""
    texts, labels = [], []
    for number, path in enumerate(sorted(folder.glob("*.md"))[:4]):
        found = [line for line in path.read_text().splitlines() if line.strip()][:most]
        texts += found
        labels += [number] * len(found)
    return datasets.Dataset.from_dict({"text": texts, "label": labels})


def tokenizer_of(texts: list[str]) -> transformers.PreTrainedTokenizerFast:
    """A tokenizer for these texts. Yours is probably AutoTokenizer.from_pretrained(...)."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=300, special_tokens=["[PAD]", "[UNK]"]))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")


def accuracy(predicted: transformers.EvalPrediction) -> dict[str, Any]:
    right = predicted.predictions.argmax(-1) == predicted.label_ids
    return {"accuracy": float(numpy.mean(right)), "samples": len(right)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the folder of the checkpoints")
    parser.add_argument("--texts", type=Path, default=GUIDES, help="a folder of .md files; default: stoker's guides")
    parser.add_argument("--lines", type=int, default=50, help="lines of each text; default: 50")
    parser.add_argument("--batch-size", type=int, default=8, help="samples in a batch of one rank; default: 8")
    parser.add_argument("--accumulate", type=int, default=1, help="batches in an optimizer step; default: 1")
    parser.add_argument("--epochs", type=float, default=2.0, help="default: 2")
    parser.add_argument("--max-steps", type=int, default=-1, help="stops after so many optimizer steps")
    parser.add_argument("--save-steps", type=int, default=5, help="steps from one checkpoint to the next; default: 5")
    parser.add_argument("--workers", type=int, default=0, help="processes that make samples; default: 0")
    parser.add_argument("--by-length", action="store_true", help="batches of texts of similar length")
    parser.add_argument("--resume", action="store_true", help="goes on from the newest checkpoint")
    parser.add_argument("--cpu", action="store_true", help="uses no GPU, even if there is one")
    args = parser.parse_args()

    # The same texts for training and evaluation: this is about the loading, not about the model.
    texts = lines(args.texts, args.lines)
    tokenizer = tokenizer_of(texts["text"])
    train = texts.map(lambda batch: tokenizer(batch["text"], truncation=True, max_length=48), batched=True)

    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        num_labels=4,
    )
    settings = transformers.TrainingArguments(
        output_dir=str(args.out),
        per_device_train_batch_size=args.batch_size,
        per_device_eval_batch_size=args.batch_size,
        gradient_accumulation_steps=args.accumulate,
        num_train_epochs=args.epochs,
        max_steps=args.max_steps,
        save_steps=args.save_steps,
        dataloader_num_workers=args.workers,
        train_sampling_strategy="group_by_length" if args.by_length else "random",
        learning_rate=1e-3,
        seed=7,
        use_cpu=args.cpu,
        disable_tqdm=True,
        report_to=[],
    )
    trainer = stoker.hf.Trainer(
        model=transformers.BertForSequenceClassification(config),
        args=settings,
        train_dataset=train,
        eval_dataset=train,
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
        compute_metrics=accuracy,
    )
    trainer.train(resume_from_checkpoint=args.resume)
    scores = trainer.evaluate()
    trainer.save_model(str(args.out / "last"))
    if trainer.is_world_process_zero():
        print(f"steps {trainer.state.global_step}, samples {scores['eval_samples']}, loss {scores['eval_loss']:.4f}")


if __name__ == "__main__":
    main()
