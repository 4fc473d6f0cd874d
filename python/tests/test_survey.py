"""stoker.stats, held to NumPy and PIL over the same pictures."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import jpeg
from PIL import Image

import stoker


def pixels(paths: list[Path]) -> np.ndarray[Any, Any]:
    """All pixels of all pictures, (n, 3), as PIL decodes them."""
    return np.concatenate([np.asarray(Image.open(path).convert("RGB")).reshape(-1, 3) for path in paths])


def channels(report: dict[str, Any], name: str) -> dict[str, Any]:
    (field,) = [field for field in report["fields"] if field["name"] == name]
    found: dict[str, Any] = field["channels"]
    return found


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of many sizes, classes of 2, 5 and 10 samples."""
    root = tmp_path_factory.mktemp("uneven")
    for label, count in enumerate((2, 5, 10)):
        for i in range(count):
            path = root / f"class{label}" / f"{i}.jpg"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(jpeg(7 * label + i, (32 + 3 * i, 24 + 5 * label)))
    return root


def test_mean_and_std_are_numpys(uneven: Path) -> None:
    paths = sorted(uneven.rglob("*.jpg"))
    all_pixels = pixels(paths).astype(np.float64) / 255
    report = stoker.stats(stoker.ImageFolder(uneven))
    found = channels(report, "image")
    np.testing.assert_allclose(found["mean"], all_pixels.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found["std"], all_pixels.std(axis=0), rtol=1e-12)
    assert found["values"] == len(all_pixels)
    assert found["scale"] == 255
    mean = ", ".join(f"{m:.6f}" for m in found["mean"])
    std = ", ".join(f"{s:.6f}" for s in found["std"])
    assert report["normalize"] == f"Normalize(mean=[{mean}], std=[{std}])"
    assert stoker.stats(uneven) == report
    assert stoker.stats([uneven], format="folder")["fields"] == report["fields"]


def test_they_are_those_of_what_a_loader_gives(folder: Path) -> None:
    loader = stoker.DataLoader(stoker.ImageFolder(folder), batch_size=10, output="numpy")
    rows = np.concatenate([images.transpose(0, 2, 3, 1).reshape(-1, 3) for images, _ in loader]) / 255
    found = channels(stoker.stats(folder), "image")
    np.testing.assert_allclose(found["mean"], rows.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found["std"], rows.std(axis=0), rtol=1e-12)


def test_classes_and_sizes(uneven: Path) -> None:
    report = stoker.stats(uneven, headers=True)
    labels = np.repeat([0, 1, 2], [2, 5, 10])
    weights = len(labels) / (3 * np.bincount(labels))  # as scikit-learn's "balanced"
    assert [c["samples"] for c in report["classes"]] == [2, 5, 10]
    np.testing.assert_allclose([c["weight"] for c in report["classes"]], weights)
    image = report["fields"][0]
    assert "channels" not in image
    assert "normalize" not in report
    paths = sorted(uneven.rglob("*.jpg"))
    sizes = [Image.open(path).size for path in paths]
    for name, values in (
        ("width", [w for w, _ in sizes]),
        ("height", [h for _, h in sizes]),
        ("bytes", [path.stat().st_size for path in paths]),
    ):
        values.sort()
        assert image[name]["min"] == values[0]
        assert image[name]["median"] == values[len(values) // 2]
        assert image[name]["p99"] == values[len(values) * 99 // 100]
        assert image[name]["max"] == values[-1]
        assert image[name]["mean"] == pytest.approx(sum(values) / len(values))


def test_shards_have_classes_of_their_labels(shards: str) -> None:
    report = stoker.stats(stoker.WebDataset(shards))
    assert report["classes_of"] == "cls"
    assert {c["name"]: c["samples"] for c in report["classes"]} == dict(Counter(str(i % 5) for i in range(30)))
    (text,) = [field for field in report["fields"] if field["name"] == "txt"]
    assert text["length"]["max"] == len("picture 29 — ü")


def test_arrays_and_tokens(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(3, 2, (40, 7)).astype(np.float32)
    values[3, 2] = np.nan
    np.save(tmp_path / "embedding.npy", values)
    found = channels(stoker.stats(tmp_path / "embedding.npy"), "embedding")
    good = values[np.isfinite(values)].astype(np.float64)
    np.testing.assert_allclose(found["mean"], [good.mean()], rtol=1e-12)
    np.testing.assert_allclose(found["std"], [good.std()], rtol=1e-12)
    assert found["not_finite"] == 1
    planes = np.random.default_rng(1).integers(0, 256, (9, 3, 6, 5), dtype=np.uint8)
    np.save(tmp_path / "planes.npy", planes)
    found = channels(stoker.stats(tmp_path / "planes.npy"), "planes")
    np.testing.assert_allclose(found["mean"], planes.mean(axis=(0, 2, 3)) / 255, rtol=1e-12)
    np.testing.assert_allclose(found["std"], planes.std(axis=(0, 2, 3)) / 255, rtol=1e-12)
    documents = [[5] * n + [9] for n in (3, 1, 10, 4)]
    np.array([token for document in documents for token in document], dtype=np.uint16).tofile(tmp_path / "train.bin")
    report = stoker.stats(stoker.TokenDataset(tmp_path / "train.bin", documents=True, eos=9, dtype="uint16"))
    assert report["fields"][0]["length"]["max"] == 11
    assert report["fields"][0]["total"] == 22


def test_a_share_is_the_same_every_time(folder: Path) -> None:
    half = stoker.stats(folder, sample="50%")
    assert half["read"] == 25
    assert half == stoker.stats(folder, sample=0.5)
    assert sum(c["samples"] for c in half["classes"]) == 50  # the index knows them all


def test_damage_is_told(own_folder: Path) -> None:
    bad = sorted(own_folder.rglob("*.jpg"))[7]
    rest = pixels([path for path in sorted(own_folder.rglob("*.jpg")) if path != bad])
    bad.write_bytes(bad.read_bytes()[:300])
    with pytest.raises(stoker.DataError, match="1 of the 50 samples") as caught:
        stoker.stats(own_folder)
    assert "on_bad" in str(caught.value)
    report = stoker.stats(own_folder, on_bad="skip")
    assert report["damaged"] == 1
    assert report["damage"][0]["where"]["sample"] == 7
    np.testing.assert_allclose(channels(report, "image")["mean"], rest.mean(axis=0) / 255, rtol=1e-12)


def test_progress_and_problems(folder: Path) -> None:
    told: list[tuple[int, int]] = []
    stoker.stats(folder, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (50, 50)
    for wrong, text in (
        ({"dataset": 5}, "give a path"),
        ({"dataset": stoker.Synthetic(5, (2, 2, 3))}, "no samples of its own"),
        ({"dataset": folder, "sample": []}, "sample is"),
        ({"dataset": folder, "sample": "0%"}, "share"),
        ({"dataset": folder, "on_bad": "ignore"}, "on_bad"),
        ({"dataset": stoker.ImageFolder(folder), "format": "tar"}, "format"),
    ):
        with pytest.raises(stoker.ConfigError, match=text):
            stoker.stats(**wrong)


def test_grey_and_png_count_as_rgb(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    grey = np.arange(64, dtype=np.uint8).reshape(8, 8)
    out = io.BytesIO()
    Image.fromarray(grey).save(out, "PNG")
    (tmp_path / "a" / "0.png").write_bytes(out.getvalue())
    found = channels(stoker.stats(tmp_path), "image")
    np.testing.assert_allclose(found["mean"], [grey.mean() / 255] * 3, rtol=1e-12)
