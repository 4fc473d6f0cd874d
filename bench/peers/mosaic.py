"""MosaicML Streaming over MDS shards of its own MDSWriter, in place: decode_jpeg and transforms.v2, as torch_tuned."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import streaming
import torch
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

from bench import shards
from bench.consumer import Options, Peer, run
from bench.peers.torch_tuned import AHEAD, steps, tuned


def write(folder: Path, photos: shards.Photos) -> None:
    columns = {"image": "bytes", "label": "int"}
    with MDSWriter(out=str(folder), columns=columns, size_limit=shards.SHARD_BYTES, exist_ok=True) as out:
        for path, label in photos.files:
            with open(path, "rb") as f:
                out.write({"image": f.read(), "label": label})
    index = json.loads((folder / "index.json").read_text())
    listed = index["shards"]
    index["shards"] = []
    for shard in listed:
        for path in shards.links(folder / shard["raw_data"]["basename"], photos.copies):
            index["shards"].append({**shard, "raw_data": {**shard["raw_data"], "basename": path.name}})
    (folder / "index.json").write_text(json.dumps(index))


class Samples(StreamingDataset):
    def __init__(self, options: Options, folder: Path) -> None:
        super().__init__(local=str(folder), shuffle=True, shuffle_seed=options.seed, batch_size=options.batch)
        self.transform = steps(options)

    def __getitem__(self, at: Any) -> Any:
        sample = super().__getitem__(at)
        return self.transform(tuned(sample["image"])), sample["label"]


def endless(loader: Any) -> Any:
    while True:
        for images, labels in loader:
            yield images.numpy(), labels.numpy()


def open_peer(options: Options, folder: Path) -> Peer:
    streaming.base.util.clean_stale_shared_memory()
    torch.manual_seed(options.seed)
    loader = StreamingDataLoader(
        Samples(options, folder),
        batch_size=options.batch,
        num_workers=options.workers,
        prefetch_factor=AHEAD,
        persistent_workers=True,
        drop_last=True,
    )
    return Peer(
        batches=endless(loader),
        in_flight=AHEAD * options.workers,
        resampling="bilinear antialiased",
        layout="NCHW",
        versions={"mosaicml-streaming": streaming.__version__, "torch": torch.__version__},
        settings={"num_workers": options.workers, "prefetch_factor": AHEAD, "shuffle_algo": "default"},
    )


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    run(open_peer, prepare=lambda options: shards.made(options.data, "mosaic", write))
