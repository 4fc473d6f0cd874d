"""A Dataset over a table: each row of a Parquet file has the path of a picture and its label.

Answers the map-style dataset of the fourth article, with pandas and PIL. The class runs under stoker's loader as it is,
in Python workers. stoker.Table reads the same table in the engine, which opens and decodes the files; torchvision's
transforms are the same object in all three. A table names files anywhere: root says which folder they must be in, so
that a table from elsewhere cannot name others. "/" trusts it.

    python examples/recipes/parquet_manifest.py --workers 4
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pandas as pd
import torch
from common import beside, flags, photographs, rate, same, show
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

import stoker

CHAIN = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor()])


class ManifestDataset(Dataset):
    """A row of the table is a sample."""

    def __init__(self, manifest: Path) -> None:
        self.samples = pd.read_parquet(manifest)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        row = self.samples.iloc[i]
        with Image.open(row.path) as picture:
            return CHAIN(picture.convert("RGB")), int(row.label)


def main() -> None:
    args = flags(__doc__).parse_args()
    with photographs(args) as folder, tempfile.TemporaryDirectory() as name:
        paths = sorted(folder.glob("*/*"))
        classes = sorted({path.parent.name for path in paths})
        rows = [(str(path), classes.index(path.parent.name)) for path in paths]
        manifest = Path(name) / "train.parquet"
        pd.DataFrame(rows, columns=["path", "label"]).to_parquet(manifest)

        settings = {"batch_size": args.batch_size, "num_workers": args.workers}
        plain = DataLoader(ManifestDataset(manifest), **settings)
        before = rate(plain)
        show("plain torch", before)
        swapped = stoker.DataLoader(ManifestDataset(manifest), **settings)
        show("stoker, the same class", rate(swapped))
        table = stoker.Table(manifest, path="path", label="label", transform=CHAIN, root="/")
        native = stoker.DataLoader(table, **settings)
        ours = rate(native)
        show("stoker.Table", ours)
        beside(before, ours)

        exact = close = True
        for a, b, c in zip(plain, swapped, native, strict=True):
            exact &= torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) and torch.equal(a[1], c[1])
            close &= (a[0] - c[0]).abs().max().item() < 2.01 / 255
        same("every batch of the class, and the labels of the table", exact)
        same("the pictures of the table, within 2 levels of 255", close)


if __name__ == "__main__":
    main()
