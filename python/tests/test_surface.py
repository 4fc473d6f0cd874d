"""The surface: names, signatures, errors, what an import needs."""

from __future__ import annotations

import inspect
import io
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.utils.data
from conftest import TOP, run_python

import stoker
from stoker import _errors
from stoker._wire import MAX_FRAME, FrameError, Reader, pack

PUBLIC = (
    "AUTOTUNE "
    "Batch BatchSampler Benchmark BetonDataset CUDAPrefetcher ConfigError DataError DataLoader Diagnosis "
    "DistributedSampler EngineError Field HDF5Dataset ImageFolder LMDBDataset LinesDataset MDSDataset Mixture "
    "NpyDataset ParquetDataset PrefetchLoader Profile Ragged RandomSampler ResourceError SequentialSampler ShardWriter "
    "SourceError StallError StateError StatefulDataLoader StokerError SubsetRandomSampler Synthetic TFRecordDataset "
    "Table TokenDataset Tuning WebDataset WeightedRandomSampler __version__ benchmark doctor files list_files pack "
    "profile stats synthetic_like to_tf transforms tune "
    "verify_receipts"
)


LAZY = {"fastai", "hf", "timm", "webdataset"}  # modules that are imported when they are asked for


def test_exports_exactly_what_is_documented() -> None:
    assert sorted(stoker.__all__) == sorted(PUBLIC.split())
    public = {name for name in vars(stoker) if not name.startswith("_")} - LAZY
    assert public == {name for name in stoker.__all__ if not name.startswith("_")}


def test_everything_public_is_documented() -> None:
    for name in stoker.__all__:
        if name in ("__version__", "AUTOTUNE"):
            continue
        thing = getattr(stoker, name)
        assert thing.__doc__, name
        for part, value in vars(thing).items():
            if not part.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                assert value.__doc__, f"{name}.{part}"


def test_hugging_face_is_imported_when_it_is_used() -> None:
    done = run_python("import sys\nsys.modules['transformers'] = None\nimport stoker\nprint('fine')\nstoker.hf")
    assert "fine" in done.stdout
    assert "ImportError: stoker.hf needs transformers and accelerate" in done.stderr
    assert "pip install transformers accelerate" in done.stderr


def test_version_is_the_file() -> None:
    assert stoker.__version__ == (TOP / "VERSION").read_text().strip()


def test_dataloader_has_torchs_signature() -> None:
    ours = inspect.signature(stoker.DataLoader).parameters
    theirs = inspect.signature(torch.utils.data.DataLoader).parameters
    for (name, parameter), (mine, own) in zip(theirs.items(), ours.items()):  # noqa: B905 ours has more
        assert mine == name
        assert own.kind == parameter.kind
        assert own.default == parameter.default
    added = set(ours) - set(theirs)
    assert added == set(
        "seed rank world_size tail on_bad max_bad max_bad_rate device output layout prefetch memory max_pixels fetch "
        "global_batch_size block window streams weights balanced replacement num_samples "
        "lengths bucket tokens pack long length_window cache tune native seeding batch_transform sharding "
        "device_prefetch static_buffers device_transform decode_device entries".split()
    )
    assert all(ours[name].kind == inspect.Parameter.KEYWORD_ONLY and ours[name].default is None for name in added)


def test_image_folder_has_torchvisions_signature() -> None:
    from torchvision.datasets import ImageFolder

    ours = inspect.signature(stoker.ImageFolder).parameters
    theirs = inspect.signature(ImageFolder).parameters
    assert list(ours) == [*theirs, "storage_options"]
    assert ours["storage_options"].kind == inspect.Parameter.KEYWORD_ONLY
    assert all(ours[name].default in (theirs[name].default, None) for name in theirs)


def test_every_code_has_its_exception() -> None:
    table = json.loads((TOP / "testdata" / "errors.json").read_text())
    assert len(table) >= 21
    for code, (status, name) in table.items():
        error = _errors.from_wire({"code": code, "exception": name, "what": "it happened", "where": {}})
        assert type(error).__name__ == name
        assert getattr(stoker, name) is type(error)
        assert error.code == code
        assert 1 <= status <= 8


def test_errors_are_also_pythons_own_kinds() -> None:
    assert issubclass(stoker.ConfigError, ValueError)
    assert issubclass(stoker.SourceError, OSError)
    assert issubclass(stoker.StallError, TimeoutError)
    assert all(issubclass(getattr(stoker, n), stoker.StokerError) for n in stoker.__all__ if n.endswith("Error"))


def test_an_error_teaches_and_pickles() -> None:
    error = _errors.from_wire(
        {
            "code": "damaged",
            "exception": "DataError",
            "what": "the JPEG ends early",
            "where": {"shard": "a.tar", "member": "x.jpg", "offset": 512, "sample": 7},
            "cause": "no end marker",
            "hint": "replace the file",
        }
    )
    for text in ("the JPEG ends early", "a.tar", "x.jpg", "512", "sample 7", "no end marker", "replace the file"):
        assert text in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.code, again.where, again.hint) == (str(error), error.code, error.where, error.hint)


def test_what_is_not_known_is_left_out() -> None:
    error = _errors.from_wire(
        {"code": "config", "exception": "ConfigError", "what": "no", "where": {"offset": -1, "sample": -1}}
    )
    assert error.where == {}
    assert str(error) == "no"


BLOCK = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top != "stoker" and top not in sys.stdlib_module_names:
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Blocker())
sys.path.insert(0, {path!r})
import stoker
from stoker import transforms as T
data = stoker.ImageFolder({folder!r}, T.Compose([T.RandomResizedCrop(224), T.ToTensor()]))
assert len(data) and data.classes
try:
    stoker.DataLoader(data, 4, True)
except stoker.ConfigError as error:
    assert "pip install numpy" in str(error), error
else:
    raise SystemExit("batches without numpy and torch")
print(stoker.__version__)
"""


def test_import_needs_the_standard_library_only(folder: Path) -> None:
    source = str(Path(stoker.__file__).parents[1])
    done = run_python(BLOCK.format(path=source, folder=str(folder)), "-S", "-I")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == stoker.__version__


def test_import_starts_nothing_and_is_light() -> None:
    code = "import sys, stoker; print(any(m in sys.modules for m in ('numpy', 'torch', 'jax', 'triton', 'asyncio')))"
    assert run_python(code).stdout.strip() == "False"


# The wire.

GOLDEN = sorted((TOP / "testdata" / "wire").glob("*.json"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_golden_frames(path: Path) -> None:
    text = path.read_text().strip()
    message = json.loads(text)
    frame = pack(message)
    assert frame[4:].decode() == text
    assert int.from_bytes(frame[:4], "little") == len(frame) - 4
    reader = Reader()
    for byte in frame[:-1]:
        reader.feed(bytes([byte]))
        assert reader.take() is None
    reader.feed(frame[-1:])
    assert reader.take() == message
    assert reader.take() is None


def test_golden_frames_are_all_there() -> None:
    kinds = {json.loads(path.read_text())["type"] for path in GOLDEN}
    passes = "pass passed next slot batch batches end cancel".split()
    workers = "worker hired hire dismiss".split()
    assert kinds == {*passes, *workers, *"hello open opened progress close table stats ask told error".split()}


@pytest.mark.parametrize(
    "data",
    [
        (MAX_FRAME + 1).to_bytes(4, "little"),
        b"\x02\x00\x00\x00{]",
        b"\x02\x00\x00\x00[]",
        b"\x02\x00\x00\x00{}",
        b"\x04\x00\x00\x00\xff\xfe\xfd\xfc",
    ],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    reader = Reader()
    reader.feed(data)
    with pytest.raises(FrameError):
        reader.take()


def test_the_errors_of_many_problems_are_one(folder: Path) -> None:
    wrong: dict[str, Any] = {
        "batch_size": 0,
        "num_workers": -1,
        "tail": "padd",
        "on_bad": "ignore",
        "device": "cuda:0",
        "output": "tensorflow",
        "seed": -5,
        "collate_fn": 5,
        "sampler": 5,
    }
    with pytest.raises(stoker.ConfigError) as caught:
        stoker.DataLoader(stoker.ImageFolder(folder), **wrong)
    for key in wrong:
        assert key in str(caught.value), key
    assert f"{len(wrong)} problems" in str(caught.value)
    assert "did you mean 'pad'" in str(caught.value)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    from stoker import _notice

    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        progress = _notice.Progress()
        progress.show(5, 10, "indexing")
        assert ("indexing 5 of 10" in stream.getvalue()) == shown
        progress.close()
        assert not stream.getvalue().rstrip("\r").rpartition("\r")[2].strip()


def test_a_progress_line_says_rate_and_time_left() -> None:
    from stoker._notice import progress_line

    assert progress_line(500, 2000, "indexing", 10.0) == "stoker: indexing 500 of 2,000, 50/s, 30 s left"
    assert progress_line(500, 0, "indexing", 10.0) == "stoker: indexing 500, 50/s"
    assert progress_line(10, 100_000, "", 1.0).endswith("2 h 46 min left")
