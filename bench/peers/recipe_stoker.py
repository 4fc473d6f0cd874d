"""bench.augment's recipes through stoker's public API, from torchvision's own objects.

settings["where"] says who makes the samples: what the engine cannot do runs in Python workers, and that is what is
measured then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import stoker
from stoker import transforms as T
from torchvision.transforms import v2

from bench.consumer import Options, Peer, run
from bench.peers import recipes
from bench.peers.stoker_loader import AHEAD


def steps(recipe: str) -> Any:
    if recipe == "randaugment":
        return v2.Compose([*recipes.randaugment(v2), v2.RandomErasing()])
    both = [v2.Compose(recipes.contrastive(v2, second)) for second in (False, True)]
    if "Views" in T.__all__:
        return T.Views(*both)
    return v2.Compose([v2.ToImage(), v2.ToPureTensor(), recipes.TwoViews(*both)])  # in Python workers


def open_peer(options: Options, recipe: str) -> Peer:
    loader = stoker.DataLoader(
        stoker.ImageFolder(options.data, transform=steps(recipe)),
        batch_size=options.batch,
        shuffle=True,
        num_workers=options.threads,
        output="numpy",
        seed=options.seed,
    )
    # The engine stores rows of pixels, whichever way they are shown; Python workers store what they are given, planes.
    where = loader.explain(0).get("python")
    return Peer(
        batches=iter(loader) if where else in_rows(loader),
        in_flight=AHEAD,
        resampling="bilinear antialiased",
        layout="NCHW" if where else "NHWC",
        versions={"stoker": stoker.__version__},
        settings={"num_workers": options.threads, "where": where or "the engine"},
        views=recipes.views_of(recipe),
    )


def in_rows(loader: Any) -> Iterator[tuple[Any, Any]]:
    for images, labels in loader:
        many = isinstance(images, (list, tuple))
        shown = [view.transpose(0, 2, 3, 1) if view.shape[1] == 3 else view for view in (images if many else [images])]
        yield (shown if many else shown[0]), labels


if __name__ == "__main__":
    recipe = recipes.chosen()
    run(lambda options: open_peer(options, recipe))
