"""The peers of stoker over a store, each under torch's DataLoader: python -m bench.peers.remote_torch PEER --row ROW.

Workers pass a batch on as one tensor, which goes through shared memory: lists of bytes are pickled into pipes, and
were slower for all. Shards are mixed in a buffer of 1,000 samples, as stoker's window is. What keeps files on a disk
(Streaming, LitData) begins with an empty folder, and is measured in its first pass only.
"""

from __future__ import annotations

import argparse
import atexit
import importlib.metadata
import itertools
import os
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from bench import far

BUFFER, AHEAD = 1000, 4
Sample = tuple[bytes, int]


def joined(samples: list[Sample]) -> tuple[torch.Tensor, int]:
    return torch.frombuffer(bytearray(b"".join(data for data, _ in samples)), dtype=torch.uint8), len(samples)


def cropped(samples: list[Sample]) -> tuple[torch.Tensor, int]:
    """RandomResizedCrop and a flip, as bench.peers.torch_tuned has them."""
    from bench.peers.torch_tuned import tuned

    return torch.stack([_transform()(tuned(data)) for data, _ in samples]), len(samples)


_steps: list[Any] = []


def _transform() -> Any:
    if not _steps:
        from torchvision.transforms import v2

        _steps.append(v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()]))
    return _steps[0]


def mine(items: list[Any]) -> list[Any]:
    """Those of this worker."""
    info = get_worker_info()
    return items if info is None else items[info.id :: info.num_workers]


def mixed(samples: Iterable[Sample]) -> Iterator[Sample]:
    """In a buffer of BUFFER, as WebDataset shuffles."""
    held: list[Sample] = []
    for sample in samples:
        if len(held) < BUFFER:
            held.append(sample)
            continue
        at = random.randrange(BUFFER)
        held[at], sample = sample, held[at]
        yield sample
    random.shuffle(held)
    yield from held


def members(file: Any) -> Iterator[Sample]:
    """Of a tar file that is read in a row."""
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=file, mode="r|") as tar:
        for member in tar:
            key, _, suffix = member.name.rpartition(".")
            read = tar.extractfile(member)
            found[suffix] = read.read() if read is not None else b""
            if len(found) == 2:
                yield found["jpg"], int(found["cls"])
                found = {}
        del key


class Tars(IterableDataset[Sample]):
    """Shards in random order, each opened by open_shard, and a buffer."""

    def __init__(self, names: list[str], open_shard: Callable[[str], Any]) -> None:
        self.names, self.open_shard = names, open_shard

    def samples(self, names: list[str]) -> Iterator[Sample]:
        for name in names:
            with self.open_shard(name) as file:
                yield from members(file)

    def __iter__(self) -> Iterator[Sample]:
        names = list(self.names)
        random.Random(torch.initial_seed() // 64).shuffle(names)
        return mixed(self.samples(mine(names)))


class Objects(Dataset[Sample]):
    """One object a sample."""

    def __init__(self, names: list[str], read: Callable[[str], bytes]) -> None:
        self.names, self.read = names, read

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, at: int) -> Sample:
        return self.read(self.names[at]), 0


def tar_names(args: argparse.Namespace, before: str) -> list[str]:
    return [f"{before}tar/{number:06d}.tar" for number in range(args.shards)]


def webdataset(args: argparse.Namespace, command: str) -> Any:
    import webdataset as wds

    names = [f"pipe:{command.format(name)}" for name in tar_names(args, "s3://data/")]
    found = wds.WebDataset(names, shardshuffle=len(names), seed=0).shuffle(BUFFER).to_tuple("jpg", "cls")
    return found.map(_pair)


def _pair(pair: Any) -> Sample:
    return pair[0], int(pair[1])


def aws(args: argparse.Namespace) -> Any:
    return webdataset(args, "aws s3 cp --only-show-errors {} -")


def s5cmd(args: argparse.Namespace) -> Any:
    return webdataset(args, "s5cmd cat {}")


def streaming(args: argparse.Namespace) -> Any:
    import streaming as st

    st.base.util.clean_stale_shared_memory()

    class Samples(st.StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, at: Any) -> Sample:
            sample = super().__getitem__(at)
            return sample["image"], int(sample["label"])

    return Samples(
        remote="s3://data/mds", local=args.folder, shuffle=True, batch_size=far.BATCH, shuffle_block_size=BUFFER
    )


def litdata(args: argparse.Namespace) -> Any:
    import litdata as ld
    from litdata.streaming import downloader

    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # which it has no public setting for

    class Samples(ld.StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, at: Any) -> Sample:
            sample = super().__getitem__(at)
            return sample["image"], int(sample["label"])

    return Samples("s3://data/litdata", cache_dir=args.folder, shuffle=True, drop_last=True)


def s3torch(args: argparse.Namespace, reader: str) -> Any:
    import s3torchconnector as s3
    from s3torchconnector import S3ReaderConstructor

    how = S3ReaderConstructor.sequential() if reader == "sequential" else S3ReaderConstructor.range_based()
    where = {
        "region": os.environ["AWS_REGION"],
        "endpoint": os.environ["AWS_ENDPOINT_URL"],
        "reader_constructor": how,
        "s3client_config": s3.S3ClientConfig(force_path_style=True),
    }
    if args.row == "files":
        return s3.S3MapDataset.from_prefix("s3://data/files/", transform=_whole, **where)
    shards = s3.S3IterableDataset.from_prefix("s3://data/tar/", enable_sharding=True, **where)
    return Sharded(shards)


def _whole(reader: Any) -> Sample:
    return reader.read(), 0


class Sharded(IterableDataset[Sample]):
    """The samples of objects that are tar files."""

    def __init__(self, shards: Any) -> None:
        self.shards = shards

    def __iter__(self) -> Iterator[Sample]:
        return mixed(itertools.chain.from_iterable(members(reader) for reader in self.shards))


class _FileSystem:
    """s3fs, made in each worker: its loop does not survive a fork."""

    def __init__(self) -> None:
        self.fs: Any = None

    def __call__(self) -> Any:
        if self.fs is None:
            import s3fs

            s3fs.S3FileSystem.clear_instance_cache()
            self.fs = s3fs.S3FileSystem(endpoint_url=os.environ["AWS_ENDPOINT_URL"])
        return self.fs

    def open(self, name: str) -> Any:
        return self().open(name, "rb", block_size=8 << 20, cache_type="readahead")

    def read(self, name: str) -> bytes:
        found: bytes = self().cat_file(name)
        return found


def s3fs(args: argparse.Namespace) -> Any:
    files = _FileSystem()
    if args.row == "files":
        listed = Path(args.listing).read_text().split()
        return Objects([f"data/{name}" for name in listed], files.read)
    return Tars(tar_names(args, "data/"), files.open)


def _open_local(name: str) -> Any:
    return open(name, "rb", buffering=1 << 20)


def _read_local(name: str) -> bytes:
    return Path(name).read_bytes()


def rclone(args: argparse.Namespace) -> Any:
    """The bucket mounted by rclone, whose processor time counts."""
    command = ["rclone", "mount", ":s3:data", args.folder, "--read-only", "--vfs-cache-mode", "off"]
    command += ["--s3-provider", "Other", "--s3-env-auth", "--s3-endpoint", os.environ["AWS_ENDPOINT_URL"]]
    command += ["--buffer-size", "32M", "--no-modtime", "--dir-cache-time", "1h", "--config", os.devnull]
    return _mounted(args, command)


def mountpoint(args: argparse.Namespace) -> Any:
    command = ["mount-s3", "data", args.folder, "--foreground", "--read-only", "--force-path-style"]
    return _mounted(args, [*command, "--endpoint-url", os.environ["AWS_ENDPOINT_URL"]])


def _mounted(args: argparse.Namespace, command: list[str]) -> Any:
    mount = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    atexit.register(_unmount, mount, args.folder)
    until = time.monotonic() + 30
    while not os.path.ismount(args.folder):
        if mount.poll() is not None or time.monotonic() > until:
            raise SystemExit(f"{command[0]} does not mount")
        time.sleep(0.02)
    if args.row == "files":
        listed = Path(args.listing).read_text().split()
        return Objects([os.path.join(args.folder, name) for name in listed], _read_local)
    return Tars(tar_names(args, args.folder + "/"), _open_local)


def _unmount(mount: Any, folder: str) -> None:
    if mount.pid and os.getpid() == _DRIVER:
        mount.terminate()
        mount.wait()
        subprocess.run(["umount", "-l", folder], check=False, capture_output=True)


_DRIVER = os.getpid()


PEERS: dict[str, Callable[[argparse.Namespace], Any]] = {
    "webdataset-aws": aws,
    "webdataset-s5cmd": s5cmd,
    "streaming": streaming,
    "litdata": litdata,
    "s3torch-sequential": lambda args: s3torch(args, "sequential"),
    "s3torch-range": lambda args: s3torch(args, "range"),
    "s3fs": s3fs,
    "rclone": rclone,
    "mountpoint": mountpoint,
}
DISTRIBUTIONS = ("webdataset", "awscli", "s5cmd", "mosaicml-streaming", "litdata", "s3torchconnector", "s3fs", "torch")


def loader(args: argparse.Namespace) -> Any:
    dataset = PEERS[args.peer](args)
    keywords: dict[str, Any] = {
        **{"batch_size": far.BATCH, "num_workers": args.workers, "drop_last": True},
        **{"collate_fn": cropped if args.row == "images" else joined},
        **{"prefetch_factor": AHEAD, "persistent_workers": True},
    }
    if args.peer == "litdata":
        import litdata as ld

        return ld.StreamingDataLoader(dataset, **keywords)
    if args.peer == "streaming":
        import streaming as st

        return st.StreamingDataLoader(dataset, **keywords)
    if not isinstance(dataset, IterableDataset):
        keywords["shuffle"] = True
    return DataLoader(dataset, **keywords)


def main() -> None:
    parser = far.options()
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--shards", type=int, required=True)
    parser.add_argument("--folder", default="", help="where a peer keeps files, or mounts the bucket; a temporary one")
    parser.add_argument("--listing", default="", help="a file with the names of all single objects")
    args = parser.parse_args()
    home = Path(sys.executable).parent
    places = [home, home.parent / "debian" / "usr" / "bin", home.parent / "debian" / "bin"]
    os.environ["PATH"] = os.pathsep.join([*map(str, places), os.environ["PATH"]])
    torch.set_num_threads(1)
    random.seed(0)
    torch.manual_seed(0)
    own = "" if args.folder else tempfile.mkdtemp(prefix="stoker-bench-")
    args.folder = args.folder or own
    held: list[Any] = []

    def passes() -> Iterator[Any]:
        held.append(loader(args))
        while True:
            yield iter(held[0])

    def about() -> dict[str, Any]:
        return {"versions": {name: importlib.metadata.version(name) for name in DISTRIBUTIONS}}

    try:
        far.measure(args, passes, about)
    finally:
        held.clear()
        if own:
            shutil.rmtree(own, ignore_errors=True)


if __name__ == "__main__":
    main()
