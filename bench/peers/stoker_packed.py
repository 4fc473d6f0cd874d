"""stoker over what `stoker pack` made of the same pictures, in place.

--form index: --jpeg index, the same pixels; 512: --resize 512 --quality 90; decoded256: --decode --resize 256
--crop 256 into .npy files. Shards are repeated by hard links, as the pictures are.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import stoker
from stoker import transforms as T

from bench import rig, shards
from bench.consumer import SIZE, Options, Peer, run
from bench.peers.stoker_loader import AHEAD, passes

FORMS: dict[str, tuple[str, ...]] = {
    "index": ("--jpeg", "index", "--progressive", "convert"),
    "512": ("--resize", "512", "--quality", "90"),
    "decoded256": ("--decode", "--resize", "256", "--crop", "256", "--output", "npy"),
}


def writer(form: str) -> Any:
    def write(folder: Path, photos: shards.Photos) -> None:
        with tempfile.TemporaryDirectory(dir=folder.parent) as origin:
            for path, _ in photos.files:
                to = Path(origin, *Path(path).parts[-2:])
                to.parent.mkdir(exist_ok=True)
                os.link(path, to)
            command = [engine(), "pack", origin, str(folder / "packed"), "--shard-size", str(shards.SHARD_BYTES)]
            subprocess.run([*command, *FORMS[form]], check=True, stdout=subprocess.DEVNULL)
        # The manifest tells how many shards there are, and there will be more.
        (folder / "packed" / "manifest.json").unlink()
        (folder / "packed" / "samples.xxh64").unlink()
        for shard in sorted((folder / "packed").iterdir()):
            shards.links(shard, photos.copies)

    return write


def engine() -> str:
    return os.environ.get("STOKER_ENGINE") or str(rig.ROOT / "build" / "stoker")


def dataset(form: str, folder: Path) -> Any:
    crop = T.Compose([T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip()])
    if form == "decoded256":
        images, labels = (sorted(str(path) for path in (folder / "packed").glob(f"*{n}*")) for n in ("image", "label"))
        fields = [stoker.Field("image", transform=crop), stoker.Field("label")]
        return stoker.NpyDataset(image=images, label=labels, fields=fields)
    found = stoker.WebDataset(sorted(str(path) for path in (folder / "packed").glob("*.tar"))).decode("pil")
    return found.to_tuple("jpg", "cls").map_tuple(crop, None)


def open_peer(options: Options, form: str, folder: Path) -> Peer:
    loader = stoker.DataLoader(
        dataset(form, folder),
        batch_size=options.batch,
        shuffle=True,
        num_workers=options.threads,
        output="numpy",
        seed=options.seed,
    )
    return Peer(
        batches=passes(loader),
        in_flight=AHEAD,
        resampling="bilinear antialiased",
        layout="NHWC",
        versions={"stoker": stoker.__version__},
        settings={"num_workers": options.threads, "pack": " ".join(FORMS[form])},
    )


def main() -> None:
    at = sys.argv.index("--form")
    form = sys.argv[at + 1]
    del sys.argv[at : at + 2]
    run(
        lambda options, folder: open_peer(options, form, folder),
        prepare=lambda options: shards.made(options.data, f"stoker-{form}", writer(form)),
    )


if __name__ == "__main__":
    main()
