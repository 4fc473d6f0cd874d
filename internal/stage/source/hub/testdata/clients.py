"""Writes the shards of a dataset, and reads a repository with the Hub's own clients."""

import json
import sys
from pathlib import Path

ROWS, SHARDS = 30, 3


def make(folder: str) -> None:
    import pyarrow
    import pyarrow.parquet

    rows = [{"n": i * i, "text": f"row {i} é", "blob": bytes([i % 256]) * i} for i in range(ROWS)]
    for shard in range(SHARDS):
        part = rows[shard * ROWS // SHARDS : (shard + 1) * ROWS // SHARDS]
        name = Path(folder) / f"train-{shard:05d}-of-{SHARDS:05d}.parquet"
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(part), name)


def read(repo: str) -> None:
    import datasets
    import huggingface_hub

    api = huggingface_hub.HfApi()
    files = sorted(api.list_repo_files(repo, repo_type="dataset"))
    fs = huggingface_hub.HfFileSystem()
    root = f"datasets/{repo}"
    downloaded, opened = {}, {}
    for name in files:
        path = huggingface_hub.hf_hub_download(repo, name, repo_type="dataset")
        downloaded[name] = Path(path).read_bytes().hex()
        with fs.open(f"{root}/{name}", "rb") as f:
            f.seek(3)
            opened[name] = f.read().hex()

    tree = {e.path: [e.size, e.lfs.sha256 if e.lfs else e.blob_id] for e in api.list_repo_tree(repo, repo_type="dataset", recursive=True) if hasattr(e, "size")}
    errors = {}
    for what, call in {
        "no repository": lambda: api.dataset_info("owner/nothing"),
        "no revision": lambda: api.dataset_info(repo, revision="nothing"),
        "no file": lambda: huggingface_hub.hf_hub_download(repo, "nothing", repo_type="dataset"),
        "gated": lambda: huggingface_hub.hf_hub_download("owner/gated", "x.bin", repo_type="dataset", token="hf_somebody"),
        "no token": lambda: huggingface_hub.hf_hub_download("owner/gated", "x.bin", repo_type="dataset", token=False),
    }.items():
        try:
            call()
        except Exception as e:  # which is what is asked
            errors[what] = type(e).__name__

    def rows(dataset) -> list:
        return [[r["n"], r["text"], r["blob"].hex()] for r in dataset]

    json.dump(
        {
            "files": files,
            "tree": tree,
            "found": sorted(p.removeprefix(root + "/") for p in fs.find(root)),
            "globbed": sorted(p.removeprefix(root + "/") for p in fs.glob(root + "/data/*.parquet")),
            "revision": fs.cat_file(f"{root}@refs%2Fpr%2F1/README.md").decode(),
            "downloaded": downloaded,
            "opened": opened,
            "errors": errors,
            "loaded": rows(datasets.load_dataset(repo, split="train")),
            "streamed": rows(datasets.load_dataset(repo, split="train", streaming=True)),
        },
        sys.stdout,
    )


if __name__ == "__main__":
    {"make": make, "read": read}[sys.argv[1]](sys.argv[2])
