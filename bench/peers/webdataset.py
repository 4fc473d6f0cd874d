"""WebDataset over tar shards of its own ShardWriter: decode_jpeg and transforms.v2, as torch_tuned does it.

Shards are drawn in random order, samples mixed in a buffer of 1,000, as its documentation advises.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import webdataset as wds

from bench import shards
from bench.consumer import Options, Peer, run
from bench.peers.torch_tuned import AHEAD, steps, tuned

BUFFER = 1000


def write(folder: Path, photos: shards.Photos) -> None:
    with wds.ShardWriter(str(folder / "%06d.tar"), maxsize=shards.SHARD_BYTES, verbose=0) as out:
        for number, (path, label) in enumerate(photos.files):
            with open(path, "rb") as f:
                out.write({"__key__": f"{number:06d}", "jpg": f.read(), "cls": label})
    for tar in sorted(folder.glob("*.tar")):
        shards.links(tar, photos.copies)


def open_peer(options: Options, folder: Path) -> Peer:
    torch.manual_seed(options.seed)
    transform = steps(options)

    def sample(pair: Any) -> Any:
        image, label = pair
        return transform(tuned(image)), int(label)

    names = sorted(str(path) for path in folder.glob("*.tar"))
    dataset = wds.WebDataset(names, shardshuffle=len(names), seed=options.seed).shuffle(BUFFER)
    dataset = dataset.to_tuple("jpg", "cls").map(sample).batched(options.batch, partial=False).repeat()
    loader = wds.WebLoader(
        dataset, batch_size=None, num_workers=options.workers, prefetch_factor=AHEAD, persistent_workers=True
    )
    return Peer(
        batches=((images.numpy(), labels.numpy()) for images, labels in loader),
        in_flight=AHEAD * options.workers,
        resampling="bilinear antialiased",
        layout="NCHW",
        versions={"webdataset": wds.__version__, "torch": torch.__version__},
        settings={"num_workers": options.workers, "prefetch_factor": AHEAD, "shuffle": BUFFER, "shards": len(names)},
    )


if __name__ == "__main__":
    run(open_peer, prepare=lambda options: shards.made(options.data, "webdataset", write))
