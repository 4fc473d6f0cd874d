"""Where the shards are, and which sample is in which."""

import bisect
import glob
import itertools
import os

from torch.utils.data import Dataset


class ShardedDataset(Dataset):
    """Base for datasets kept in part-*.npz files. Subclasses say how a sample is read and prepared."""

    def __init__(self, folder, per_shard):
        self.files = sorted(glob.glob(os.path.join(folder, "part-*.npz")))
        if not self.files:
            raise FileNotFoundError(f"no shards in {folder}")
        self.ends = list(itertools.accumulate(per_shard for _ in self.files))
        self.prepare()

    def prepare(self):
        pass

    def __len__(self):
        return self.ends[-1]

    def locate(self, index):
        shard = bisect.bisect_right(self.ends, index)
        return shard, index - (self.ends[shard - 1] if shard else 0)

    def read(self, shard, row):
        raise NotImplementedError

    def augment(self, image):
        return image

    def __getitem__(self, index):
        image, label = self.read(*self.locate(index))
        return self.augment(image), label
