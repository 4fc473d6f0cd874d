"""What the recipes share: their flags, the photographs, a rate, and the lines that they print.

A recipe has the plain lines of torch (or tf.data) first, then stoker's, runs both on the same data, and prints both
rates. Rates are of one run on one machine: docs/guides/tuning.md says how to measure.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any


def flags(text: str | None, samples: int = 600, batch_size: int = 32, workers: int = 2) -> argparse.ArgumentParser:
    """The flags that every recipe has. ``text`` is its docstring."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data",
        type=Path,
        help="a folder of pictures, one folder a class; default: what stoker demo makes",
    )
    parser.add_argument(
        "--samples",
        type=int,
        default=samples,
        help=f"how many of them are used; default: {samples}",
    )
    parser.add_argument("--batch-size", type=int, default=batch_size, help=f"default: {batch_size}")
    parser.add_argument(
        "--workers",
        type=int,
        default=workers,
        help=f"worker processes; default: {workers}",
    )
    parser.add_argument(
        "--device",
        default="cpu",
        help="where batches are moved to: cpu (default) or cuda",
    )
    return parser


def shard_flags(text: str | None, **defaults: int) -> argparse.ArgumentParser:
    """The flags of recipes that read shards: stoker may read them where the article's are, in a store."""
    parser = flags(text, **defaults)
    parser.add_argument(
        "--shards",
        metavar="URLS",
        help="where stoker reads copies of the shards, such as s3://bucket/shards/photos-{000..003}.tar; "
        "default: the local folder, which plain webdataset reads",
    )
    return parser


@contextmanager
def photographs(args: argparse.Namespace) -> Iterator[Path]:
    """A folder of ``--samples`` pictures of every class alike, as links to those of ``--data``."""
    root = (args.data or demo()).resolve()
    classes = [sorted(p for p in one.iterdir() if p.is_file()) for one in sorted(root.iterdir()) if one.is_dir()]
    turns = itertools.chain.from_iterable(itertools.zip_longest(*classes))
    with tempfile.TemporaryDirectory(prefix="stoker-recipe-") as name:
        for path in itertools.islice(filter(None, turns), args.samples):
            link = Path(name) / path.parent.name / path.name
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(path)
        yield Path(name)


def demo() -> Path:
    """The folder that ``stoker demo`` has made, or makes now."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(os.environ.get("STOKER_CACHE") or Path(base) / "stoker")
    for manifest in sorted(cache.glob("demo-*/manifest.json")):
        return manifest.parent / "photos"
    told = subprocess.run(
        [sys.executable, "-m", "stoker", "demo", "--json"],
        check=True,
        stdout=subprocess.PIPE,
    )
    return Path(json.loads(told.stdout)["data"]["path"])


def decoded(folder: Path, size: int) -> tuple[Any, Any]:
    """The pictures of a folder as one uint8 tensor (n, 3, size, size), and their labels: for files of arrays."""
    import stoker
    from stoker import transforms as T

    photos = stoker.ImageFolder(folder, transform=T.Resize((size, size)))
    with stoker.DataLoader(photos, batch_size=len(photos)) as loader:
        images, labels = next(iter(loader))
        return images.contiguous().clone(), labels.clone()


def rate(
    batches: Iterable[Any],
    count: Callable[[Any], int] = lambda batch: len(batch[0]),
    passes: int = 1,
) -> float:
    """Samples a second over so many passes, the start of the loader left out: the clock starts at the first batch."""
    samples, seconds = 0, 0.0
    for _ in range(passes):
        begin = None
        for batch in batches:
            if begin is None:
                begin = now()
            else:
                samples += count(batch)
        seconds += now() - begin if begin is not None else 0
    return samples / seconds if seconds else 0.0


def now() -> float:
    """The time in seconds when the GPU, if it is in use, has done what it was told."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


def equal(*loaders: Iterable[Any]) -> bool:
    """Whether loaders give the same batches, at least one: tensors, or tuples of these."""
    import torch

    found = False
    for batches in zip(*loaders, strict=True):
        first, *others = [[one] if isinstance(one, torch.Tensor) else list(one) for one in batches]
        for other in others:
            if not all(torch.equal(a, b) for a, b in zip(first, other, strict=True)):
                return False
        found = True
    return found


def show(name: str, samples_per_s: float) -> None:
    """A line of a rate. Recipes print at least one that starts with ``plain`` and one that starts with ``stoker``."""
    print(f"{name:<44} {samples_per_s:>10,.0f} samples/s")


def show_ms(name: str, seconds: float, of: str = "a batch") -> None:
    """The same line for a duration of one batch, one sample or one step."""
    print(f"{name:<44} {seconds * 1e3:>10,.3f} ms {of}")


def beside(plain: float, stoker: float, than: str = "plain") -> None:
    """How many times as fast stoker was in this run."""
    print(f"stoker is {stoker / plain:.1f} times as fast as {than} in this run")


def alike(equal: Callable[[Any, Any], bool], one: Iterable[Any], other: Iterable[Any]) -> bool:
    """Whether two loaders give as many batches, at least one, and each is equal to the other's."""
    found = [equal(a, b) for a, b in zip(one, other, strict=True)]
    return bool(found) and all(found)


def same(what: str, equal: bool) -> None:
    """Ends the recipe if what it says is not the same."""
    if not equal:
        raise SystemExit(f"NOT THE SAME: {what}")
    print(f"same: {what}")


def shards(photos: Path, folder: Path, side: int = 0, count: int = 4) -> str:
    """The pictures in so many tar shards, with their class as ``cls`` and ``txt``, as a pattern with braces. With
    ``side`` they are squares of that size, otherwise the files as they are."""
    import stoker

    classes = sorted(one.name for one in photos.iterdir())
    found = sorted(photos.glob("*/*"), key=lambda path: (path.name, path.parent.name))
    each = -(-len(found) // count)
    with stoker.ShardWriter(str(folder / "photos-%03d.tar"), maxcount=each, verbose=0) as sink:
        for number, path in enumerate(found):
            label = classes.index(path.parent.name)
            data = path.read_bytes() if not side else square(path, side)
            sink.write({"__key__": f"{number:06d}", "jpg": data, "cls": label, "txt": str(label)})
    return str(folder / f"photos-{{000..{-(-len(found) // each) - 1:03d}}}.tar")


def square(path: Path, side: int) -> bytes:
    """A picture as a JPEG of side x side."""
    import io

    from PIL import Image, ImageOps

    out = io.BytesIO()
    with Image.open(path) as picture:
        picture.draft("RGB", (side, side))
        ImageOps.fit(picture.convert("RGB"), (side, side)).save(out, "JPEG", quality=90)
    return out.getvalue()


def under_torchrun(ranks: int = 2) -> None:
    """Starts the recipe again with torchrun, unless that has started it; and joins the other ranks."""
    if "RANK" not in os.environ:
        command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *sys.argv]
        raise SystemExit(subprocess.run([sys.executable, *command], check=False).returncode)
    import torch.distributed

    torch.distributed.init_process_group("gloo")


def gathered(value: Any) -> list[Any]:
    """The values of all ranks."""
    import torch.distributed

    found = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(found, value)
    return found


@contextmanager
def one_folder(args: argparse.Namespace) -> Iterator[Path]:
    """What photographs() gives, made by rank 0 for all ranks of this machine."""
    import torch.distributed

    if not torch.distributed.is_initialized():
        with photographs(args) as folder:
            yield folder
        return
    with photographs(args) if torch.distributed.get_rank() == 0 else nullcontext() as made:
        yield gathered(made)[0]
        torch.distributed.barrier()  # rank 0 removes it when nobody reads it any more


def memory_mib() -> float:
    """Memory of this process and of its children, where what they share counts once (PSS)."""
    processes = {os.getpid()}
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    while more := {child for child, parent in parents.items() if parent in processes} - processes:
        processes |= more
    kib = 0
    for process in processes:
        with suppress(OSError):
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
            kib += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kib / 1024
