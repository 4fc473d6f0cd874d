"""Sequences of unequal length: a collate function that sorts and pads once, and stoker's batches of similar lengths.

Answers the part on custom collate functions of the second article. Its function works in both loaders, and in both the
rows of a batch are as long as its longest sequence. ``lengths=`` with ``bucket=`` puts sequences of similar length into
the same batch, so that less of it is padding; ``tokens=`` also makes batches of equal cost. Both shuffle.

The article's function also pins what it returns. In a worker process that is lost on the way to the loop, and may be an
error after a fork, so the loaders do it: pin_memory=True, for --device cuda.

The function is Python in both loaders, so stoker gains nothing with it. These sequences are in memory and cost nothing
to take: without workers torch is the fastest of all here, and stoker, which seeds random numbers before each sample, is
slower. Sequences that are stored are padded by the engine: the last two lines read the same ones from a file of tokens.

    python examples/recipes/padding_collate.py --samples 4000
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import alike, beside, flags, rate, same, show
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

import stoker

END = 1  # of a sequence in a file; 0 fills up


class Sequences(Dataset):
    """Made-up tokens: many short sequences, few long ones."""

    def __init__(self, count: int) -> None:
        numbers = np.random.default_rng(0)
        self.lengths = np.clip(numbers.lognormal(4, 0.8, count), 4, 1000).astype(int).tolist()
        self.tokens = [torch.from_numpy(numbers.integers(2, 30000, length)) for length in self.lengths]

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, i: int) -> torch.Tensor:
        return self.tokens[i]


def collate(batch: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """The article's way: sorted by length, and padded in one call."""
    batch = sorted(batch, key=len, reverse=True)
    lengths = torch.tensor([len(one) for one in batch])
    return pad_sequence(batch, batch_first=True), lengths


def main() -> None:
    args = flags(__doc__, samples=4000).parse_args()
    pinned = {"pin_memory": args.device != "cpu"}
    settings = {"batch_size": args.batch_size, "num_workers": args.workers, **pinned}
    dataset = Sequences(args.samples)
    by_length = {"lengths": dataset.lengths, "bucket": 16 * args.batch_size}

    alone = {**settings, "num_workers": 0}
    for kind, name in ((DataLoader, "plain torch"), (stoker.DataLoader, "stoker")):
        loader = kind(dataset, shuffle=True, collate_fn=collate, **alone)
        measured(f"{name}, the function, without workers", loader, args)
    loader = DataLoader(dataset, shuffle=True, collate_fn=collate, **settings)
    plain = measured("plain torch, sorted and padded once", loader, args)
    loader = stoker.DataLoader(dataset, shuffle=True, collate_fn=collate, **settings)
    beside(plain, measured("stoker, the same function", loader, args), "torch with workers")
    loader = stoker.DataLoader(dataset, shuffle=True, collate_fn=collate, **by_length, **settings)
    beside(plain, measured("stoker, and batches by length", loader, args), "torch with workers")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sequences.bin"
        np.concatenate([np.append(one.numpy(), END) for one in dataset.tokens]).astype("<u2").tofile(path)
        stored = stoker.TokenDataset(path, documents=True, eos=END, dtype="uint16")
        padded = stored.to_tuple(stoker.Field("tokens", batch="padded"))
        runs = {"lengths": "tokens", "bucket": 16 * args.batch_size}
        loader = stoker.DataLoader(padded, shuffle=True, **runs, **settings)
        beside(plain, measured("stoker, stored, by length", loader, args), "torch with workers")
        budget = int(args.batch_size * np.mean(dataset.lengths))
        cost = {"lengths": "tokens", "tokens": budget, "num_workers": args.workers}
        loader = stoker.DataLoader(padded, shuffle=True, **cost, **pinned)
        measured(f"stoker, stored, {budget} tokens a batch", loader, args)
        check(dataset, padded, settings)


def measured(name: str, loader: Any, args: Any) -> float:
    """The rate of a pass, and how much of the batches is padding."""
    used = made = 0

    def moved() -> Any:
        nonlocal used, made
        for padded, lengths in loader:
            used, made = used + int(lengths.sum()), made + padded.numel()
            device = padded.to(args.device, non_blocking=True)
            yield device, lengths

    found = rate(moved(), count=lambda batch: len(batch[1]))
    show(name, found)
    print(f"{'':<44} {1 - used / made:>10.0%} padding")
    return found


def check(dataset: Sequences, stored: Any, settings: Any) -> None:
    theirs = DataLoader(dataset, collate_fn=collate, **settings)
    with stoker.DataLoader(dataset, collate_fn=collate, **settings) as mine:
        same("every batch of the function", alike(equal, theirs, mine))
    with stoker.DataLoader(stored, shuffle=True, lengths="tokens", bucket=256, **settings) as loader:
        seen, right = [], True
        for batch in loader:
            for i, row, length in zip(batch.ids.tolist(), *batch, strict=True):
                seen.append(i)
                end = length - 1  # where END is
                right &= torch.equal(row[:end].long(), dataset[i]) and int(row[end]) == END and not row[length:].any()
    same("every stored sequence, and what fills it up is 0", right and set(seen) == {*range(len(dataset))})


def equal(one: Any, other: Any) -> bool:
    return torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])


if __name__ == "__main__":
    main()
