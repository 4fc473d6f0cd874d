"""Steps of Python over datasets that the engine reads: map, functions in transforms, collate_fn."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mine
import numpy as np
import pytest
import steps
import torch
from conftest import PHOTOS, make_folder
from forms import mostly
from needs import needs
from PIL import Image
from torch.utils import data
from torchvision import transforms as v1
from torchvision.transforms import v2

import stoker
from stoker import transforms as T
from stoker._split import array

SMALL = [T.Resize((16, 12))]
MEAN, STD = [0.5, 0.4, 0.3], [0.2, 0.3, 0.4]


@pytest.fixture
def train(folder: Path) -> Any:
    return stoker.ImageFolder(folder, SMALL)


def loaded(dataset: Any, batch_size: Any = 8, **more: Any) -> Any:
    loader: Any = stoker.DataLoader
    return loader(dataset, batch_size, **{"num_workers": 2, **more})


def rows(dataset: Any, **more: Any) -> list[Any]:
    """All samples as a loader delivers them, copied."""
    found = []
    with loaded(dataset, None, **more) as loader:
        for sample in loader:
            found.append(copied(sample))
    return found


def copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: copied(one) for key, one in value.items()}
    if isinstance(value, (tuple, list)):
        return [copied(one) for one in value]
    return value.clone() if isinstance(value, torch.Tensor) else value


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, torch.Tensor) or isinstance(b, (torch.Tensor, np.ndarray)):
        return bool(torch.equal(torch.as_tensor(a), torch.as_tensor(b)))
    return bool(a == b)


# map.


@pytest.mark.parametrize("workers", mostly([0, 1, 3], 3))
def test_a_function_gets_what_the_dataset_gives(train: Any, workers: int) -> None:
    mapped = train.map(steps.small).map(steps.doubled)
    assert len(mapped) == 50
    assert mapped.classes == train.classes
    found = rows(mapped, num_workers=workers)
    for i in range(50):
        image, label = train[i]
        assert equal(found[i], [image[:, :8, :8].float() / 255, label * 2])
        assert equal(found[i], list(mapped[i]))
    batch = next(iter(loaded(mapped, num_workers=workers)))
    assert batch[0].shape == (8, 3, 8, 8)
    assert batch[1].tolist() == [train[i][1] * 2 for i in range(8)]


def test_every_dataset_has_it(folder: Path, shards: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(12, dtype=np.float32))
    (tmp_path / "t.txt").write_text("one\ntwo\n")
    given: list[tuple[Any, Callable[[Any], Any]]] = [
        (stoker.NpyDataset(tmp_path / "x.npy"), lambda x: float(x) + 1),
        (stoker.files([f"{folder}/*/*.jpg"], transform=SMALL), lambda s: s[0].float().mean()),
        (stoker.WebDataset(shards).decode("pil"), lambda s: s["cls"]),
        (stoker.LinesDataset(tmp_path / "t.txt"), lambda s: len(s["text"])),
        (stoker.Synthetic(5, (2, 2, 3)), lambda s: s[0].shape[0]),
        (stoker.Mixture([stoker.ImageFolder(folder, SMALL)] * 2), lambda s: s[1]),
    ]
    for dataset, function in given:
        mapped = dataset.map(function)
        assert equal(rows(mapped, num_workers=1)[0], mapped[0]), dataset
        assert len(mapped) == len(dataset)


def test_the_numbers_drawn_depend_on_the_place_only(folder: Path) -> None:
    train = stoker.ImageFolder(folder, [T.RandomResizedCrop(8)])

    def epochs(workers: int, **more: Any) -> Any:
        with loaded(train.map(steps.drawn), shuffle=True, seed=7, num_workers=workers, **more) as loader:
            return [[copied(batch) for batch in loader] for _ in range(2)]

    want = epochs(0)
    assert equal(want, epochs(1))
    assert equal(want, epochs(3, persistent_workers=True))
    assert not equal(want[0][0][1], want[1][0][1])
    assert equal(*(rows(train.map(steps.small), shuffle=True, seed=7, num_workers=n) for n in (0, 2)))


def test_native_random_numbers_are_those_without_python(folder: Path) -> None:
    train = stoker.ImageFolder(folder, [T.RandomResizedCrop(8), T.RandomHorizontalFlip()])
    plain = [copied(sample[0]) for sample in stoker.DataLoader(train, None, shuffle=True, seed=5)]
    mapped = rows(train.map(lambda s: s[0]), shuffle=True, seed=5)
    assert equal(plain, mapped)


def test_resume_at_every_step(train: Any) -> None:
    mapped = train.map(steps.drawn)
    with loaded(mapped, shuffle=True, seed=3) as loader:
        whole, states = [], [loader.state_dict()]
        for batch in loader:
            whole.append(copied(batch))
            states.append(loader.state_dict())
    for step, state in enumerate(states[:-1]):
        with loaded(mapped, shuffle=True, num_workers=1) as again:
            again.load_state_dict(state)
            assert equal([copied(batch) for batch in again], whole[step:]), step


def test_states_know_functions_by_name(train: Any, caplog: pytest.LogCaptureFixture) -> None:
    with loaded(train.map(steps.small)) as loader:
        state = loader.state_dict()
    assert "steps.small" in state["python"]["code"]
    with loaded(train.map(steps.named)) as other, pytest.raises(stoker.StateError):
        other.load_state_dict(state)
    state["python"]["code"]["steps.small"] = "0" * 16
    with loaded(train.map(steps.small)) as same:
        same.load_state_dict(state)
    assert "the code of steps.small has changed" in caplog.text


@pytest.mark.parametrize("method", mostly(["fork", "spawn", "forkserver"], "fork", "forkserver"))
def test_start_methods(train: Any, method: str) -> None:
    with loaded(train.map(steps.named), num_workers=1, multiprocessing_context=method) as loader:
        batch = next(iter(loader))
    assert batch["text"][:2] == ["class 0", "class 0"]


def test_what_cannot_be_pickled_is_named(train: Any) -> None:
    with (
        loaded(train.map(lambda s: s), num_workers=1, multiprocessing_context="spawn") as loader,
        pytest.raises(stoker.ConfigError, match="cannot be pickled") as caught,
    ):
        next(iter(loader))
    assert "map test_what_cannot_be_pickled_is_named.<lambda> (" in str(caught.value)
    assert "get the dataset and its functions pickled" in str(caught.value)
    chain = stoker.ImageFolder(train.root, [*SMALL, lambda image: image])
    with loaded(chain, num_workers=1, multiprocessing_context="spawn") as loader:
        with pytest.raises(stoker.ConfigError, match=r"transform .*<lambda> \(.*test_steps.py:\d+\) cannot be pickled"):
            next(iter(loader))
    bad = mine.Squares()
    bad.config = [lambda: 0]  # type: ignore[attr-defined]
    with loaded(stoker.Mixture([bad, bad]), num_workers=1, multiprocessing_context="spawn") as loader:
        with pytest.raises(stoker.ConfigError, match=r"datasets\[0\]\.config\[0\] cannot be pickled"):
            next(iter(loader))


def test_which_path_runs_is_said(train: Any, capsys: pytest.CaptureFixture[str]) -> None:
    next(iter(loaded(train.map(steps.small))))
    line = steps.small.__code__.co_firstlineno
    said = capsys.readouterr().err
    assert "2 Python workers (fork), because map(small (" in said
    assert f"steps.py:{line})) is Python" in said
    next(iter(loaded(stoker.ImageFolder(train.root, [*SMALL, steps.Mirror()]))))
    assert "because transform Mirror (" in capsys.readouterr().err
    next(iter(loaded(train, collate_fn=steps.lengths)))
    assert "because collate_fn lengths (" in capsys.readouterr().err
    next(iter(loaded(train.take(9))))
    assert "stoker: native, 2 lanes" in capsys.readouterr().err


def test_workers_left_out_are_the_lanes_minus_one(train: Any) -> None:
    from stoker._spec import lanes

    assert stoker.DataLoader(train.map(steps.small)).num_workers == max(1, lanes() - 1)


def test_errors_of_functions(train: Any) -> None:
    with pytest.raises(stoker.ConfigError, match="cannot be called"):
        train.map("small")
    with loaded(train.map(steps.nothing)) as loader, pytest.raises(stoker.DataError, match="returned None"):
        next(iter(loader))
    for workers in (0, 2):
        with (
            loaded(train.map(steps.failing), num_workers=workers) as loader,
            pytest.raises(stoker.DataError, match="two") as caught,
        ):
            list(loader)
        assert isinstance(caught.value.__cause__, KeyError)
        assert "sample" in caught.value.where
        with loaded(train.map(steps.failing), num_workers=workers, on_bad="replace") as loader:
            assert all(2 not in batch.tolist() for batch in loader)


def test_a_bad_batch_of_one_sample_leaves_its_worker_free(shards: str) -> None:
    """The batch before it may still be on its way from the engine."""

    def raises(sample: Any) -> Any:
        if sample["cls"] == 1:
            raise KeyError
        return sample["cls"]

    for _ in range(5):
        with (
            loaded(stoker.WebDataset(shards).decode("pil").map(raises), None, num_workers=1) as loader,
            pytest.raises(stoker.DataError),
        ):
            list(loader)


def test_an_unreadable_picture_follows_on_bad(tmp_path: Path) -> None:
    root = make_folder(tmp_path, 12)
    (root / "class0" / "0003.jpg").write_bytes(b"no picture")
    mapped = stoker.ImageFolder(root, SMALL).map(steps.small)
    with loaded(mapped) as loader, pytest.raises(stoker.DataError, match=r"0003\.jpg"):
        list(loader)
    with loaded(mapped, on_bad="skip") as loader:
        bad = []
        for _ in loader:
            assert loader.facts is not None
            bad += [one.sample for one in loader.facts.bad]
    assert bad == [1]


def test_a_dataset_with_steps_can_be_pickled(train: Any) -> None:
    again = pickle.loads(pickle.dumps(train.map(steps.small).take(7)))
    assert len(again) == 7
    assert equal(again[3], train.map(steps.small)[3])


def test_torchs_loader_takes_it(train: Any) -> None:
    loader = data.DataLoader(train.map(steps.small), 10)
    assert [batch[0].shape[0] for batch in loader] == [10] * 5


# Transforms with steps that the engine does not know.

CHAINS: dict[str, Any] = {
    "a class": [T.Resize((16, 12)), steps.Mirror()],
    "a class, torchvision's after it": v2.Compose(
        [
            v2.Resize((16, 12)),
            steps.Mirror(),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    ),
    "version 1": v1.Compose([v1.Resize((16, 12)), steps.Mirror(), v1.ToTensor(), v1.Normalize(MEAN, STD)]),
    "ours after it": T.Compose([T.Resize((16, 12)), steps.Mirror(), T.ToTensor(), T.Normalize(MEAN, STD)]),
    "a function of tensors": [T.Resize((16, 12)), T.ToTensor(), steps.bright],
    "a lambda": v2.Compose([v2.Resize((16, 12)), v2.Lambda(lambda image: image.rotate(90)), v2.ToImage()]),
    "not in the engine": v2.Compose([v2.Resize((16, 12)), v2.JPEG(50), v2.ToImage()]),
    "nested": v2.Compose([v2.Compose([v2.Resize((16, 12)), steps.Mirror()]), v2.ToImage()]),
}


@pytest.mark.parametrize(
    "name", mostly(CHAINS, "a class, torchvision's after it", "ours after it", "not in the engine")
)
def test_a_chain_is_split(folder: Path, name: str) -> None:
    """The result is that of the same chain with everything in Python, on the picture that the engine makes."""
    chain = CHAINS[name]
    train = stoker.ImageFolder(folder, chain)
    resized = stoker.ImageFolder(folder, SMALL)
    found = rows(train, num_workers=2)
    assert equal(found[:5], [list(train[i]) for i in range(5)])
    given = chain if isinstance(chain, list) else chain.transforms
    flat = [step for one in given for step in (one.transforms if hasattr(one, "transforms") else [one])]
    for i in (0, 7, 31):
        value: Any = v2.functional.to_pil_image(resized[i][0])
        for step in flat[1:]:
            if isinstance(step, T.ToTensor):
                step = v1.ToTensor()
            elif isinstance(step, T.Normalize):
                step = v2.Normalize(step.mean, step.std)
            value = step(value)
        if not isinstance(value, torch.Tensor):
            value = v2.functional.pil_to_tensor(value)
        assert torch.allclose(found[i][0].float(), value.as_subclass(torch.Tensor).float(), atol=1e-6), (name, i)
        assert type(found[i][0]) is torch.Tensor


def test_several_crops_of_one_picture(folder: Path) -> None:
    train = stoker.ImageFolder(folder, v2.Compose([v2.Resize((16, 12)), v2.FiveCrop(8)]))
    (crops, _) = next(iter(loaded(train, 4)))
    assert [tuple(crop.shape) for crop in crops] == [(4, 3, 8, 8)] * 5


def test_random_steps_after_the_engines_are_keyed(folder: Path) -> None:
    chain = v2.Compose([v2.RandomResizedCrop(12), v2.ColorJitter(0.5, 0.5), steps.jitter, v2.ToImage()])
    train = stoker.ImageFolder(folder, chain)
    want = rows(train, seed=2, num_workers=0)
    assert equal(want, rows(train, seed=2, num_workers=3))
    assert not equal(want, rows(train, seed=3, num_workers=0))


def test_fields_keep_their_own_chains(folder: Path) -> None:
    train = stoker.ImageFolder(folder, [T.Resize((16, 12)), steps.Mirror()])
    both = train.select("label", "image", stoker.Field("plain", source="image", transform=SMALL))
    sample = both[4]
    assert list(sample) == ["label", "image", "plain"]
    assert equal(sample["image"], sample["plain"].flip(2))
    assert equal(rows(both, num_workers=1)[4], sample)
    (picture,) = train.to_tuple("image")[4]
    assert equal(picture, sample["image"])


def test_fields_with_names_that_begin_alike_draw_their_own_numbers(folder: Path) -> None:
    chain = [T.Resize((16, 12)), steps.jitter]
    fields = [stoker.Field(f"picture{i}", source="image", transform=chain) for i in (1, 2)]
    sample = stoker.ImageFolder(folder).select(*fields)[4]
    assert not equal(sample["picture1"], sample["picture2"])


def test_a_transform_may_change(folder: Path) -> None:
    train = stoker.ImageFolder(folder, [T.Resize((16, 12)), steps.Mirror()])
    with loaded(train) as loader:
        before = copied(next(iter(loader))[0])
        train.transform = [T.Resize((16, 12)), steps.Mirror(), steps.Mirror()]
        assert equal(copied(next(iter(loader))[0]), before.flip(3))
        train.transform = SMALL
        assert equal(copied(next(iter(loader))[0]), before.flip(3))
    native = stoker.ImageFolder(folder, SMALL)
    with loaded(native) as loader:
        next(iter(loader))
        native.transform = [*SMALL, steps.Mirror()]
        with pytest.raises(stoker.ConfigError, match="make a new loader"):
            iter(loader)


def test_ours_with_wrong_arguments_are_errors_still(folder: Path) -> None:
    with pytest.raises(stoker.ConfigError, match="interpolation"):
        stoker.ImageFolder(folder, [T.Resize(8, interpolation="lanczos"), steps.Mirror()])


def test_arrays_of_pictures_may_be_written_to() -> None:
    assert array(Image.new("RGB", (4, 4))).flags.writeable


@pytest.mark.parametrize("between", mostly([[], [T.ToImage()], [steps.Mirror()]], []))
def test_albumentations_get_arrays(folder: Path, between: list[Any]) -> None:
    albumentations = needs("albumentations")

    class Seen(albumentations.ImageOnlyTransform):  # type: ignore[misc, name-defined]
        def apply(self, img: Any, **_: Any) -> Any:
            assert (type(img), img.dtype, img.shape) == (np.ndarray, np.uint8, (16, 12, 3))
            return img

    compose = albumentations.Compose(
        [Seen(p=1.0), albumentations.HorizontalFlip(p=0.5), albumentations.RandomBrightnessContrast(p=1.0)]
    )
    train = stoker.ImageFolder(folder, [*SMALL, *between, compose])
    want = rows(train, seed=4, num_workers=0)
    assert want[0][0].shape == (16, 12, 3)
    assert equal(want, rows(train, seed=4, num_workers=2))
    with loaded(train, seed=4) as loader:
        first, later = ([copied(batch[0]) for batch in loader] for _ in range(2))
    assert not equal(first, later)  # another epoch draws other numbers


# collate_fn.


@pytest.mark.parametrize("workers", [0, 2])
def test_collate_fn_over_native_datasets(train: Any, workers: int) -> None:
    with loaded(train, collate_fn=steps.lengths, num_workers=workers) as loader:
        found = list(loader)
        assert loader.facts is not None
        assert loader.facts.ids.tolist() == [48, 49]
    assert [n for n, _ in found] == [8] * 6 + [2]
    assert [label for _, labels in found for label in labels] == list(train.targets)


def test_torchs_own_collate_fn_is_native(train: Any) -> None:
    with loaded(train, collate_fn=data.default_collate) as loader:
        assert isinstance(next(iter(loader)), stoker.Batch)


def test_pictures_of_any_size_reach_it(folder: Path) -> None:
    photos = stoker.files(PHOTOS)
    with loaded(photos, 6, collate_fn=lambda samples: [sample[0].shape for sample in samples]) as loader:
        (shapes,) = loader
    assert len(set(shapes)) > 1


def test_other_orders_and_the_cache(train: Any) -> None:
    weights = [1.0 if i < 3 else 0.0 for i in range(50)]
    with loaded(train.map(steps.small), weights=weights, num_samples=20, num_workers=1) as loader:
        ids = [i for _ in loader for i in loader.facts.ids.tolist()]
    assert set(ids) <= {0, 1, 2}
    want = [copied(batch) for batch in loaded(train.map(steps.small), num_workers=1)]
    with loaded(train.map(steps.small), cache="8MiB") as loader:
        for _ in range(2):
            assert equal([copied(batch) for batch in loader], want)
    with loaded(train.map(steps.small), layout="nhwc", num_workers=1) as loader:
        assert next(iter(loader))[0].shape[1:] == (16, 8, 3)  # what [:, :8, :8] leaves of (16, 12, 3)
