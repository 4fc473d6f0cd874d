"""fastai's Learner over stoker's loaders: what it reads of them, and StateCallback."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib
import pytest
import torch
from PIL import Image

matplotlib.use("agg")
from fastai.callback.training import GradientAccumulation
from fastai.data.core import DataLoaders as Theirs
from fastai.distributed import DistributedDL
from fastai.vision.all import (
    Callback,
    ClassificationInterpretation,
    CrossEntropyLossFlat,
    IntToFloatTensor,
    Learner,
    Normalize,
    TensorCategory,
    TensorImage,
    accuracy,
    aug_transforms,
    imagenet_stats,
    load_learner,
)

import stoker
from stoker import transforms as T
from stoker.fastai import DataLoaders, StateCallback

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from conftest import PHOTOS

N, STEPS = 14, 3  # samples; steps of 4 in training, where two are left out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("classes")
    for photo in [photo for photo in PHOTOS if photo.name in ("chelsea.jpg", "coffee.jpg")]:
        (root / photo.stem).mkdir()
        with Image.open(photo) as whole:
            picture = whole.convert("RGB").resize((48, 40))
        for i in range(N // 2):
            picture.crop((i, i, 40 + i, 32 + i)).save(root / photo.stem / f"{i}.jpg")
    return root


def loaders(folder: Path, floats: bool = True) -> tuple[stoker.DataLoader, stoker.DataLoader]:
    end = [T.ToTensor()] if floats else []
    train = stoker.ImageFolder(folder, T.Compose([T.RandomResizedCrop(16), *end]))
    valid = stoker.ImageFolder(folder, T.Compose([T.Resize((16, 16)), *end]))
    return stoker.DataLoader(train, 4, shuffle=True, seed=1, drop_last=True), stoker.DataLoader(valid, 5, seed=1)


def net() -> Any:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 2))


class Seen(Callback):  # type: ignore[misc, no-any-unimported, unused-ignore]
    """Epochs and steps of the training batches, and learning rates."""

    def __init__(self) -> None:
        self.places: list[tuple[int, int]] = []
        self.rates: list[float] = []

    def before_batch(self) -> None:
        if self.learn.training:
            train = self.learn.dls.train
            facts = train.facts if isinstance(train, DistributedDL) else train.receipt()["parts"][-1]
            if isinstance(train, DistributedDL):
                self.places.append((facts.epoch, facts.step))
            else:
                self.places.append((facts["epoch"], facts["to"] // 4 - 1))

    def after_batch(self) -> None:
        if self.learn.training:
            self.rates.append(self.learn.opt.hypers[-1]["lr"])


def learner(folder: Path, path: Path, *cbs: Any, dls: Any = None) -> Any:
    dls = DataLoaders(*loaders(folder), path=path) if dls is None else dls
    learn = Learner(dls, net(), CrossEntropyLossFlat(), metrics=accuracy, cbs=list(cbs))
    learn.remove_cbs([one for one in learn.cbs if type(one).__name__ == "ProgressCallback"])
    learn.logger = lambda *_: None
    return learn


def places(*epochs: int) -> list[tuple[int, int]]:
    return [(epoch, step) for epoch in epochs for step in range(STEPS)]


def test_fastais_own_dataloaders_fit_and_validate(folder: Path, tmp_path: Path) -> None:
    seen = Seen()
    learn = learner(folder, tmp_path, seen, dls=Theirs(*loaders(folder), path=tmp_path))
    learn.fit_one_cycle(2)
    assert seen.places == places(0, 1)
    loss, right = learn.validate()
    assert loss > 0
    assert 0 <= right <= 1
    for name in ("bs", "new", "to", "one_batch", "show_batch", "after_batch"):
        with pytest.raises(AttributeError, match=r"stoker\.fastai\.DataLoaders"):
            getattr(learn.dls.train, name)
    with pytest.raises(AttributeError, match=r"stoker\.fastai\.DataLoaders"):  # as distrib_ctx does
        DistributedDL(learn.dls.train, 0, 2)


def test_what_fastai_reads(folder: Path, tmp_path: Path) -> None:
    train, valid = loaders(folder)
    dls = DataLoaders(train, valid, path=tmp_path)
    assert (dls.vocab, dls.c, dls.n_inp, dls.bs) == (["chelsea", "coffee"], 2, 1, 4)
    assert (dls.train.n, len(dls.train), len(dls.valid)) == (N, STEPS, 3)
    assert dls.train_ds is train.dataset
    assert dls.valid.dataset is valid.dataset
    assert dls.device == dls.train.device == torch.device("cuda" if torch.cuda.is_available() else "cpu")
    assert dls.cpu() is dls
    assert dls.train.device.type == "cpu"
    assert DataLoaders(train, valid, vocab=["a", "b"]).vocab == ["a", "b"]
    with pytest.raises(AttributeError, match="vocab"):
        DataLoaders(stoker.DataLoader(torch.utils.data.TensorDataset(torch.arange(4)))).train.vocab  # noqa: B018


def test_one_batch_leaves_the_loader_where_it_is(folder: Path, tmp_path: Path) -> None:
    dls = DataLoaders(*loaders(folder), path=tmp_path)
    images, labels = dls.one_batch()
    images, labels = images.clone(), labels.clone()
    first = next(iter(dls.train))
    assert torch.equal(first[0], images)
    assert torch.equal(first[1], labels)
    assert dls.train.facts.epoch == 0
    assert "Linear" in str(learner(folder, tmp_path, dls=dls).summary())


def test_predictions_are_in_the_order_of_the_dataset(folder: Path, tmp_path: Path) -> None:
    learn = learner(folder, tmp_path)
    learn.fit(1)
    before = learn.dls.train.state_dict()
    for which in (0, 1):
        inputs, found, labels = learn.get_preds(ds_idx=which, with_input=True)
        assert labels.tolist() == [0] * (N // 2) + [1] * (N // 2)  # of shuffled batches too
        with torch.no_grad():
            want = torch.softmax(learn.model(inputs), 1)
        assert torch.allclose(found, want, atol=1e-6)
    assert learn.dls.train.state_dict() == before
    _, _, decoded, losses = learn.get_preds(with_decoded=True, with_loss=True)
    assert len(decoded) == len(losses) == N
    assert len(learn.get_preds(dl=learn.dls.valid.loader)[0]) == N
    matrix = ClassificationInterpretation.from_learner(learn).confusion_matrix()
    assert matrix.sum() == N


def test_padding_is_left_out(folder: Path, tmp_path: Path) -> None:
    train, valid = loaders(folder)
    filled = stoker.DataLoader(valid.dataset, 5, seed=1, tail="fill")
    learn = learner(folder, tmp_path, dls=DataLoaders(train, filled, path=tmp_path))
    assert sum(map(len, (batch[1] for batch in filled))) == 15
    found, labels = learn.get_preds()
    assert len(found) == N
    assert labels.tolist() == [0] * (N // 2) + [1] * (N // 2)


def test_what_a_loader_cannot_become(folder: Path, tmp_path: Path) -> None:
    learn = learner(folder, tmp_path)
    with pytest.raises(stoker.ConfigError, match="over other items"):
        learn.predict(0)
    with pytest.raises(stoker.ConfigError, match="with num_workers"):
        learn.dls.train.new(num_workers=3)


def test_transforms_of_batches(folder: Path, tmp_path: Path) -> None:
    """On bytes; those of training are not used in validation."""
    steps = [IntToFloatTensor(), *aug_transforms(size=16), Normalize.from_stats(*imagenet_stats, cuda=False)]
    train, _ = loaders(folder, floats=False)
    same = stoker.DataLoader(train.dataset, 5, seed=1)
    dls = DataLoaders(same, same, path=tmp_path, after_batch=steps)
    (images, labels), (plain, _) = dls.train.one_batch(), dls.valid.one_batch()
    assert isinstance(images, TensorImage)
    assert isinstance(labels, TensorCategory)
    mean, std = (torch.tensor(one).view(1, 3, 1, 1) for one in imagenet_stats)
    want = (next(iter(same))[0].float() / 255 - mean) / std
    assert torch.allclose(torch.Tensor(plain), want, atol=1e-5)
    assert not torch.allclose(torch.Tensor(images), want, atol=0.05)
    learn = learner(folder, tmp_path, dls=dls)
    learn.fit(1)
    learn.show_results(max_n=2)
    dls.show_batch(max_n=2)
    assert [ax.get_title() for ax in matplotlib.pyplot.gcf().axes if ax.get_title()] == ["chelsea", "chelsea"]


def test_export(folder: Path, tmp_path: Path) -> None:
    learn = learner(folder, tmp_path)
    learn.export("whole.pkl")
    again = load_learner(tmp_path / "whole.pkl")
    assert torch.equal(again.model[1].weight, learn.model[1].weight)
    assert len(again.dls) == 0


def test_lr_find_leaves_the_loader_where_it_was(folder: Path, tmp_path: Path) -> None:
    """With the callback; without it, the passes of lr_find count."""
    for with_it in (True, False):
        seen = Seen()
        learn = learner(folder, tmp_path, seen, *([StateCallback()] if with_it else []))
        learn.fit(1)
        learn.lr_find(num_it=7, show_plot=False)
        seen.places.clear()
        learn.fit(1)
        assert seen.places == places(1 if with_it else 4)


class Cut(Callback):  # type: ignore[misc, no-any-unimported, unused-ignore]
    """Ends at a batch, as a kill would."""

    order = 80

    def __init__(self, at: int) -> None:
        self.at = at

    def before_batch(self) -> None:
        if self.learn.training and self.learn.train_iter == self.at:
            raise KeyboardInterrupt


def train(learn: Any, fine: bool) -> None:
    learn.fine_tune(2, freeze_epochs=1) if fine else learn.fit_one_cycle(3, 0.01)


@pytest.mark.parametrize(
    ("own", "every", "at", "fine"),
    [(True, 1, 4, False), (True, 2, 6, False), (False, 2, 5, False), (True, 3, 7, False), (True, 1, 4, True)],
    ids=["in mid-epoch", "at the end of an epoch", "fastai's DataLoaders", "after an epoch", "in the second fit"],
)
def test_a_run_goes_on(folder: Path, tmp_path: Path, own: bool, every: int, at: int, fine: bool) -> None:
    """With the batches, the rates and the weights of an undisturbed run."""
    made = DataLoaders if own else Theirs
    whole, seen = learner(folder, tmp_path / "whole", dls=made(*loaders(folder), path=tmp_path / "whole")), Seen()
    whole.add_cb(seen)
    train(whole, fine)
    cut = learner(folder, tmp_path, StateCallback(every), Cut(at), dls=made(*loaders(folder), path=tmp_path))
    kept = cut.save("last-best")  # the user's own
    with pytest.raises(KeyboardInterrupt):
        train(cut, fine)
    assert kept.exists()
    kept.unlink()
    saved = json.loads((tmp_path / "models" / "last.json").read_text())
    assert saved["train_iter"] == at // every * every
    assert [path.name for path in (tmp_path / "models").glob("last-*")] == [f"last-{saved['train_iter']}.pth"]
    rest, after = learner(folder, tmp_path, dls=made(*loaders(folder), path=tmp_path)), Seen()
    rest.add_cbs([StateCallback(every, resume=True), after])
    train(rest, fine)
    begin = saved["train_iter"] + (STEPS if saved["fit"] else 0)
    assert after.places == seen.places[begin:]
    assert after.rates == seen.rates[begin:]
    assert torch.equal(rest.model[1].weight, whole.model[1].weight)
    assert rest.recorder.losses[-1] == pytest.approx(whole.recorder.losses[-1])
    assert rest.validate() == whole.validate()  # which does not load the checkpoint again


def test_a_checkpoint_waits_for_the_optimiser(folder: Path, tmp_path: Path) -> None:
    learn = learner(folder, tmp_path, StateCallback(3), GradientAccumulation(8), Cut(4))
    with pytest.raises(KeyboardInterrupt):
        learn.fit(2)
    assert json.loads((tmp_path / "models" / "last.json").read_text())["train_iter"] == 4


def test_without_a_checkpoint_training_begins(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    seen = Seen()
    learner(folder, tmp_path, StateCallback(resume=True), seen).fit(1)
    assert seen.places == places(0)
    assert "last.json, so training begins" in capfd.readouterr().err
