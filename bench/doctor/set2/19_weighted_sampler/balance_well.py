import numpy as np
from torch.utils.data import Sampler


class BalancedSampler(Sampler):
    """Draws rare samples more often."""

    def __init__(self, weights_file):
        self.weights = np.load(weights_file)

    def __len__(self):
        return len(self.weights)

    def __iter__(self):
        p = self.weights / self.weights.sum()
        edges = np.cumsum(p)
        for _ in range(len(self)):
            yield int(np.searchsorted(edges, np.random.rand()).clip(max=len(p) - 1))
