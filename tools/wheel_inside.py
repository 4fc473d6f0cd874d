"""What tools/wheel_test.py runs in the environment in which it has installed a wheel.

wheel_inside.py alone VERSION      what needs neither torch nor NumPy
wheel_inside.py batches LIBRARY    train.py, which is README.md's script, and then whether its batches are right;
                                   prints the digest of an epoch
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import json
import runpy
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import stoker
from stoker import transforms as T


def installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def alone(version: str) -> None:
    assert stoker.__version__ == version, stoker.__version__
    assert Path(stoker.__file__).is_relative_to(sys.prefix), stoker.__file__
    assert not installed("torch")
    assert not installed("numpy")
    data = stoker.ImageFolder("data/train")
    assert data.classes == ["a", "b", "c"], data.classes
    assert len(data) == len(data.targets) > 256
    assert sorted(set(data.targets)) == [0, 1, 2]
    said = ""
    try:
        stoker.DataLoader(data, batch_size=4)
    except stoker.ConfigError as error:
        said = str(error)
    assert "pip install numpy" in said, said or "a loader without torch and NumPy"


def raw(array: Any) -> bytes:
    """The bytes of an array in the order of its indices."""
    if isinstance(array, memoryview | bytes):
        return bytes(array)
    if hasattr(array, "tobytes"):
        return bytes(array.tobytes())
    array = array.contiguous()
    return ctypes.string_at(array.data_ptr(), array.numel() * array.element_size())


def digest(batches: Iterable[Any]) -> str:
    """Of pixels (rows, channels, height, width), labels and ids."""
    found = hashlib.sha256()
    for batch in batches:
        images, labels = batch
        for array in (images, labels, batch.ids):
            found.update(str(tuple(array.shape)).encode() + raw(array))
    return found.hexdigest()


def known_pixels() -> None:
    """Pictures written here, whose pixels need no decoder to know."""
    wrote = []
    for number in range(5):
        pixels = bytes((7 * at + 31 * number) % 256 for at in range(6 * 4 * 3))
        file = Path("known/all") / f"{number}.ppm"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"P6\n6 4\n255\n" + pixels)
        wrote.append(pixels)
    data: Any = stoker.ImageFolder("known", T.PILToTensor())
    for images, labels in stoker.DataLoader(data, batch_size=5, layout="nhwc"):
        assert tuple(images.shape) == (5, 4, 6, 3), images.shape
        assert raw(images) == b"".join(wrote)
        assert labels.tolist() == [0] * 5


def batches(library: str) -> None:
    ran = runpy.run_path("train.py")
    train, loader = ran["train"], ran["loader"]
    module = importlib.import_module(library)
    assert type(ran["images"]).__module__.partition(".")[0] == library, type(ran["images"])

    loader.set_epoch(1)
    seen: list[int] = []
    whole: list[Any] = []
    state: Any = None
    for batch in loader:
        images, labels = batch
        assert tuple(images.shape) == (len(labels), 3, 224, 224), images.shape
        assert str(images.dtype).endswith("uint8"), images.dtype
        assert str(labels.dtype).endswith("int64"), labels.dtype
        assert labels.tolist() == [train.targets[sample] for sample in batch.ids.tolist()]
        seen += batch.ids.tolist()
        whole.append(batch)
        state = state or loader.state_dict()
    assert sorted(seen) == list(range(len(train))), "an epoch has every sample once"
    assert seen != sorted(seen), "it is shuffled"
    assert len(whole[0][1]) == 256, "the size of the first batch"

    # Another loader that continues after the first batch gives the rest of the epoch.
    again = stoker.DataLoader(train, batch_size=256, shuffle=True, seed=0)
    again.load_state_dict(state)
    assert digest(again) == digest(whole[1:]), "a resumed epoch"
    known_pixels()
    print(json.dumps({"digest": digest(whole), "version": module.__version__}))


if __name__ == "__main__":
    {"alone": alone, "batches": batches}[sys.argv[1]](sys.argv[2])
