"""LitData over chunks of its own optimize(), in place: decode_jpeg and transforms.v2, as torch_tuned does it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import litdata
import torch

from bench import shards
from bench.consumer import Options, Peer, run
from bench.peers.torch_tuned import AHEAD, steps, tuned


def pack(item: tuple[str, int]) -> dict[str, Any]:
    with open(item[0], "rb") as f:
        return {"image": f.read(), "label": item[1]}


def write(folder: Path, photos: shards.Photos) -> None:
    litdata.optimize(
        fn=pack,
        inputs=photos.files,
        output_dir=str(folder),
        chunk_bytes=shards.SHARD_BYTES,
        num_workers=1,
        mode="overwrite",
    )
    index = json.loads((folder / "index.json").read_text())
    listed = index["chunks"]
    index["chunks"] = []
    for chunk in listed:
        for path in shards.links(folder / chunk["filename"], photos.copies):
            index["chunks"].append({**chunk, "filename": path.name})
    (folder / "index.json").write_text(json.dumps(index))


class Samples(litdata.StreamingDataset):
    def __init__(self, options: Options, folder: Path) -> None:
        super().__init__(str(folder), shuffle=True, seed=options.seed, drop_last=True)
        self.steps = steps(options)

    def __getitem__(self, at: Any) -> Any:
        sample = super().__getitem__(at)
        return self.steps(tuned(sample["image"])), sample["label"]


def endless(loader: Any) -> Any:
    while True:
        for images, labels in loader:
            yield images.numpy(), labels.numpy()


def open_peer(options: Options, folder: Path) -> Peer:
    torch.manual_seed(options.seed)
    loader = litdata.StreamingDataLoader(
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
        versions={"litdata": litdata.__version__, "torch": torch.__version__},
        settings={"num_workers": options.workers, "prefetch_factor": AHEAD},
    )


if __name__ == "__main__":
    run(open_peer, prepare=lambda options: shards.made(options.data, "litdata", write))
