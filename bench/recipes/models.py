"""Models that a processor trains in milliseconds a step: what is compared is the data."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torchvision.models import VisionTransformer


class SmallNet(nn.Sequential):
    """Five convolutions of stride 2, the mean over what is left, and one linear layer or two."""

    def __init__(self, outputs: int, hidden: int = 0) -> None:
        layers: list[nn.Module] = []
        before = 3
        for width in (16, 32, 64, 96, 128):
            layers += [nn.Conv2d(before, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            before = width
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        if hidden:
            layers += [nn.Linear(before, hidden), nn.ReLU(inplace=True)]
        super().__init__(*layers, nn.Linear(hidden or before, outputs))


class SmallViT(VisionTransformer):  # type: ignore[misc, unused-ignore]
    """torchvision's, of two layers, with patches of an eighth of the side."""

    def __init__(self, classes: int, size: int) -> None:
        super().__init__(
            image_size=size,
            patch_size=size // 8,
            num_layers=2,
            num_heads=3,
            hidden_dim=96,
            mlp_dim=192,
            num_classes=classes,
        )
        nn.init.trunc_normal_(self.heads[-1].weight, std=0.02)  # torchvision's zeros give no gradient to the rest


def nt_xent(found: torch.Tensor, temperature: float) -> torch.Tensor:
    """SimCLR's loss. found: (2n, d); rows i and n + i are views of one picture."""
    found = F.normalize(found, dim=1)
    alike = found @ found.T / temperature
    alike.fill_diagonal_(-torch.inf)
    half = len(found) // 2
    partners = torch.arange(2 * half, device=found.device).roll(half)
    return F.cross_entropy(alike, partners)
