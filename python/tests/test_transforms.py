"""stoker.transforms and their way to a Spec, against torchvision's classes."""

from __future__ import annotations

import copy
import enum
import inspect
import json
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from needs import needs

import stoker
from stoker import transforms as T
from stoker._compile import to_ops
from stoker._errors import ConfigError

ROOT = Path(__file__).parents[2]
PHOTOS = ROOT / "testdata" / "photos"

# One of each, with arguments that are not the defaults: name, arguments, keywords.
EXAMPLES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("AugMix", (), {"fill": 9}),
    ("AugMix", (5, 2, 1, 0.5, False), {"interpolation": "nearest"}),
    ("AutoAugment", (), {"fill": [1, 2, 3]}),
    ("CenterCrop", (8,), {}),
    ("CenterCrop", ([8, 9],), {}),
    ("ColorJitter", (0.4, 0.3, 0.2, 0.1), {}),
    ("ColorJitter", (), {"brightness": (0.5, 3), "hue": (-0.2, 0.1)}),
    ("GaussianBlur", (5,), {}),
    ("GaussianBlur", ((9, 3),), {"sigma": (0.5, 3)}),
    ("GaussianBlur", (7,), {"sigma": 2}),
    ("Grayscale", (3,), {}),
    ("Normalize", ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6)), {}),
    ("PILToTensor", (), {}),
    ("Pad", (2,), {}),
    ("Pad", ([1, 2],), {"fill": 7}),
    ("Pad", ((1, 2, 3, 4),), {"padding_mode": "reflect"}),
    ("RandomAdjustSharpness", (2,), {"p": 0.3}),
    ("RandomAffine", (10,), {"fill": (1, 2, 3), "center": [3, 4]}),
    ("RandomAffine", ((-3, 20), (0.1, 0.2), (0.5, 2), (1, 2, 3, 4)), {"interpolation": 2}),
    ("RandomAutocontrast", (0.3,), {}),
    ("RandomChannelPermutation", (), {}),
    ("RGB", (), {}),
    ("RandAugment", (), {}),
    ("RandAugment", (3, 4, 10), {"interpolation": 2, "fill": (1, 2, 3)}),
    ("RandomCrop", (8,), {}),
    ("RandomCrop", ((8, 9),), {"padding": 3, "fill": (1, 2, 3)}),
    ("RandomCrop", (8, [1, 2, 3, 4]), {"pad_if_needed": True, "padding_mode": "edge"}),
    ("RandomEqualize", (), {}),
    ("RandomErasing", (), {}),
    ("RandomErasing", (0.25,), {"scale": (0.1, 0.2), "ratio": (0.5, 2), "value": (1, 2, 3)}),
    ("RandomGrayscale", (0.3,), {}),
    ("RandomHorizontalFlip", (), {}),
    ("RandomInvert", (), {"p": 0.1}),
    ("RandomPerspective", (0.3, 0.4), {"fill": 7}),
    ("RandomPhotometricDistort", (), {"contrast": (0.9, 1.1), "p": 0.3}),
    ("RandomPosterize", (3,), {}),
    ("RandomResize", (8, 20), {}),
    ("RandomResize", (8, 9), {"interpolation": 3}),
    ("RandomResizedCrop", (8,), {"scale": (0.5, 1.0), "interpolation": 0}),
    ("RandomResizedCrop", ([8, 9],), {"ratio": (1.0, 1.0)}),
    ("RandomRotation", (10,), {"expand": True}),
    ("RandomRotation", ((10, 20),), {"center": (1.5, 2), "fill": 0.5}),
    ("RandomSolarize", (128,), {"p": 0.2}),
    ("RandomShortestSize", (8,), {}),
    ("RandomShortestSize", ([8, 12, 16], 20), {"antialias": None}),
    ("RandomVerticalFlip", (0.9,), {}),
    ("RandomZoomOut", (), {}),
    ("RandomZoomOut", ((1, 2, 3), [1.5, 2], 1.0), {}),
    ("Resize", (8,), {"max_size": 20}),
    ("Resize", ([8, 9],), {"interpolation": 2}),
    ("Resize", ([8],), {"antialias": None}),
    ("ScaleJitter", ((20, 30),), {}),
    ("ScaleJitter", ([8, 9], (0.5, 1.0)), {"interpolation": "nearest"}),
    ("ToImage", (), {}),
    ("ToTensor", (), {}),
    ("TrivialAugmentWide", (16,), {"fill": 128}),
]
BATCHES = {"CutMix", "MixUp"}  # for whole batches: test_mix.py
OTHERS = {"AutoAugmentPolicy", "InterpolationMode", "Views"}  # test_views.py has Views
CLASSES = sorted(set(T.__all__) - OTHERS)


def ours(name: str, *args: Any, **kwargs: Any) -> Any:
    return getattr(T, name)(*args, **kwargs)


def theirs(package: str, name: str, *args: Any, **kwargs: Any) -> Any:
    modules = {
        "v1": needs("torchvision.transforms"),
        "v2": needs("torchvision.transforms.v2"),
    }
    cls = getattr(modules[package], name, None)
    if cls is None:
        pytest.skip(f"torchvision {package} has no {name}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cls(*args, **kwargs)


def plain(value: Any) -> Any:
    """A default as both sides may write it."""
    return value.value if isinstance(value, enum.Enum) else str(value).removeprefix("torch.")


@pytest.mark.parametrize("name", CLASSES)
def test_signatures_are_torchvisions(name: str) -> None:
    v2 = needs("torchvision.transforms.v2")
    cls = getattr(v2, name, None) or getattr(v2._misc, name)

    def parameters(of: Any) -> list[tuple[str, Any, Any]]:
        if of.__init__ is object.__init__:
            return []
        signature = inspect.signature(of)
        return [(p.name, p.kind, plain(p.default)) for p in signature.parameters.values()]

    mine = [p for p in parameters(getattr(T, name)) if p[0] != "draft"]  # which torchvision has not
    assert mine == parameters(cls)


@pytest.mark.parametrize("name", ["Resize", "RandomResizedCrop"])
def test_drafts_are_asked_for(name: str) -> None:
    exact, draft = ours(name, 224), ours(name, 224, draft=True)
    assert to_ops(draft, "here") == [{**to_ops(exact, "here")[0], "draft": True}]
    assert "draft" not in to_ops(exact, "here")[0]
    assert "draft" not in repr(exact)
    assert "draft=True" in repr(draft)
    with pytest.raises(ConfigError, match="draft needs bilinear"):
        to_ops(ours(name, 224, interpolation="nearest", draft=True), "here")


@pytest.mark.parametrize(("name", "args", "kwargs"), EXAMPLES)
@pytest.mark.parametrize("package", ["v1", "v2"])
def test_torchvisions_objects_compile_to_what_ours_do(
    package: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    mine = to_ops(ours(name, *args, **kwargs), "here")
    assert mine == to_ops(theirs(package, name, *args, **kwargs), "here") or name == "RandomCrop"
    if name == "RandomCrop":  # the same padding, written in other ways
        other = to_ops(theirs(package, name, *args, **kwargs), "here")
        assert spread(mine[0]) == spread(other[0])
    assert json.loads(json.dumps(mine)) == mine
    assert [op["op"] for op in mine] == [name]


def spread(op: dict[str, Any]) -> dict[str, Any]:
    """RandomCrop with its padding as four numbers."""
    p = op.get("padding")
    if p is not None:
        op["padding"] = p * 4 if len(p) == 1 else [p[0], p[1], p[0], p[1]] if len(p) == 2 else p
    return op


def test_the_engine_has_what_is_offered() -> None:
    fields = []
    for number, (name, args, kwargs) in enumerate(EXAMPLES):
        front = [T.ToTensor()] if name == "Normalize" else [T.CenterCrop(64)]
        transform = [*front, ours(name, *args, **kwargs)]
        fields.append(stoker.Field(f"{name}_{number}", source="image", transform=transform))
    (batch,) = stoker.DataLoader(stoker.files([PHOTOS / "coffee.jpg"], fields=fields), batch_size=1)
    assert [pictures.ndim for pictures in batch] == [4] * len(EXAMPLES)


def test_every_class_is_tested_and_listed() -> None:
    tested = {name for name, _, _ in EXAMPLES}
    # Of one version of torchvision only, or with tests of their own.
    holders = {"Compose", "RandomApply", "RandomChoice", "RandomOrder"}
    assert set(CLASSES) - BATCHES - tested == {"ConvertImageDtype", "Identity", "ToDtype", *holders}
    guide = (ROOT / "docs" / "guides" / "pytorch.md").read_text()
    listed = guide[guide.index("Native: `") + len("Native: `") :]
    assert set(listed[: listed.index("`")].split()) == set(CLASSES) - BATCHES


@pytest.mark.parametrize(("name", "args", "kwargs"), EXAMPLES)
def test_repr_is_torchvisions(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    mine = repr(ours(name, *args, **kwargs))
    if name == "RandomCrop" and (len(args) > 1 or "padding" in kwargs):
        assert "padding=" in mine  # v2 shows it in an order of its own
        return
    assert mine == repr(theirs("v2", name, *args, **kwargs))


def test_repr_of_holders_is_torchvisions() -> None:
    v2 = needs("torchvision.transforms.v2")

    def build(m: Any) -> Any:
        held = [m.RandomApply([m.Resize(3), m.ToImage()], p=0.2), m.CenterCrop(2)]
        some = [*held, m.RandomChoice(held, p=[1, 3]), m.RandomOrder([m.Resize(3), m.ToImage()])]
        return m.Compose([*some, m.Compose([m.RandomOrder([m.ToImage()])])])

    assert repr(build(T)) == repr(build(v2))


@pytest.mark.parametrize(("name", "args", "kwargs"), EXAMPLES)
def test_pickle_and_copy(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    one = ours(name, *args, **kwargs)
    for again in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
        assert type(again) is type(one)
        assert vars(again) == vars(one)
        assert to_ops(again, "") == to_ops(one, "")


def test_import_needs_the_standard_library_only() -> None:
    code = (
        "import sys; import stoker.transforms, stoker._compile as c; "
        "print(sorted(m for m in ('torch', 'torchvision', 'numpy', 'PIL') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_usual_training_transform() -> None:
    t = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([0.5], [0.25])])
    assert to_ops(t, "here") == [
        {
            "op": "RandomResizedCrop",
            "size": [224, 224],
            "scale": [0.08, 1.0],
            "ratio": [0.75, 4.0 / 3.0],
            "interpolation": "bilinear",
        },
        {"op": "RandomHorizontalFlip", "p": 0.5},
        {"op": "ToTensor"},
        {"op": "Normalize", "mean": [0.5], "std": [0.25]},
    ]
    assert to_ops(None, "here") == []


def test_holders_are_flattened_and_random_apply_is_not() -> None:
    torch = needs("torch")
    v1 = needs("torchvision.transforms")
    v2 = needs("torchvision.transforms.v2")
    t = v1.Compose(
        [
            torch.nn.Sequential(v2.CenterCrop(4), torch.nn.Identity()),
            v2.RandomApply(torch.nn.ModuleList([v2.Compose([v2.Resize(3)])]), p=0.25),
            [v2.ToImage(), v2.ToPureTensor()],
        ]
    )
    assert to_ops(t, "here") == [
        {"op": "CenterCrop", "size": [4, 4]},
        {"op": "Identity"},
        {"op": "RandomApply", "p": 0.25, "transforms": [{"op": "Resize", "size": [3], "interpolation": "bilinear"}]},
        {"op": "ToImage"},
        {"op": "Identity"},
    ]


def test_the_preset_of_classification_weights() -> None:
    presets = needs("torchvision.transforms._presets")
    ops = to_ops(presets.ImageClassification(crop_size=224, resize_size=232), "here")
    assert [op["op"] for op in ops] == ["Resize", "CenterCrop", "ToDtype", "Normalize"]
    assert (ops[0]["size"], ops[1]["size"], ops[3]["std"]) == ([232], [224], [0.229, 0.224, 0.225])


def test_dtypes_of_every_library() -> None:
    np = needs("numpy")
    torch = needs("torch")
    for dtype in ("float32", "torch.float32", torch.float32, torch.float, np.float32, np.dtype("float32")):
        assert to_ops(T.ToDtype(dtype, scale=True), "") == [{"op": "ToDtype", "dtype": "float32", "scale": True}]
    for dtype in ("uint8", torch.uint8, np.uint8, np.dtype("uint8")):
        assert to_ops(T.ConvertImageDtype(dtype), "") == [{"op": "ConvertImageDtype", "dtype": "uint8"}]
    for dtype in ("float16", "half", torch.float16, torch.half, np.float16, np.dtype("float16")):
        assert to_ops(T.ToDtype(dtype), "") == [{"op": "ToDtype", "dtype": "float16", "scale": False}]
    for dtype in ("bfloat16", torch.bfloat16):
        assert to_ops(T.ConvertImageDtype(dtype), "") == [{"op": "ConvertImageDtype", "dtype": "bfloat16"}]
    for dtype in (torch.float64, np.float64, "int64", float, None):
        with pytest.raises(ConfigError, match="dtype cannot be"):
            to_ops(T.ToDtype(dtype), "")


def test_values_that_v2_keeps_by_type() -> None:
    torch = needs("torch")
    tv = needs("torchvision.tv_tensors")
    v2 = needs("torchvision.transforms.v2")
    t = v2.ToDtype({tv.Image: torch.float32, tv.Mask: torch.int64, "others": None}, scale=True)
    assert to_ops(t, "") == [{"op": "ToDtype", "dtype": "float32", "scale": True}]
    assert to_ops(v2.ToDtype({tv.Mask: torch.int64, "others": None}), "")[0]["dtype"] == "uint8"
    assert to_ops(v2.Pad(1, fill={tv.Image: 9, "others": 0}), "")[0]["fill"] == 9.0
    with pytest.raises(ConfigError, match="no value for images"):
        to_ops(v2.Pad(1, fill={tv.Mask: 9}), "")


def test_tensors_and_arrays_as_arguments() -> None:
    np = needs("numpy")
    torch = needs("torch")
    v1 = needs("torchvision.transforms")
    t = v1.Normalize(torch.tensor([0.5, 0.25, 0.125]), np.array([0.5]))
    assert to_ops(t, "") == [{"op": "Normalize", "mean": [0.5, 0.25, 0.125], "std": [0.5]}]
    assert to_ops(T.CenterCrop(np.int64(5)), "") == [{"op": "CenterCrop", "size": [5, 5]}]


class MyAug:
    def __call__(self, x: Any) -> Any:
        return x


class MyCrop(T.CenterCrop):
    pass


def shrink(x: Any) -> Any:
    return x


def refused(transform: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        to_ops(transform, "ImageFolder(transform=...)")
    assert caught.value.code == "config"
    return str(caught.value)


def test_what_can_not_run_is_named_with_its_place() -> None:
    t = T.Compose([T.Resize(4), MyAug(), T.ToTensor()])
    text = refused(t)
    assert "ImageFolder(transform=...): transform 2 of 3: MyAug" in text
    assert "transform: MyAug" in refused(MyAug())
    assert "MyCrop is a subclass of CenterCrop" in refused([MyCrop(3)])
    assert "the function shrink" in refused([shrink])
    assert "test_transforms.py" in refused([lambda x: x])
    assert "ToTensor is a class" in refused([T.ToTensor])
    assert "transform 1 of 1 in transform 2 of 2 (RandomApply): MyAug" in refused(
        [T.ToImage(), T.RandomApply([MyAug()])]
    )


def test_an_object_that_python_code_has_changed_is_refused() -> None:
    v2 = needs("torchvision.transforms.v2")
    replaced, hooked, holder = v2.Resize(4), v2.Resize(4), v2.Compose([v2.Resize(4)])
    replaced.forward = lambda x: x * 0
    hooked.register_forward_hook(lambda *_: None)
    holder.register_forward_pre_hook(lambda *_: None)
    text = refused([v2.Resize(4), replaced, hooked])
    assert "transform 2 of 3: forward of this Resize was replaced by Python code" in text
    assert "transform 3 of 3: this Resize has a hook in Python" in text
    assert "transform: this Compose has a hook in Python" in refused(holder)


def test_torchvisions_others_are_named() -> None:
    v1 = needs("torchvision.transforms")
    v2 = needs("torchvision.transforms.v2")

    class Mine(v2.Resize):  # type: ignore[misc, name-defined, unused-ignore]
        pass

    text = refused([v2.ElasticTransform(), v1.Lambda(lambda x: x), Mine(3), v1.Resize(3)])
    assert "3 problems" in text
    assert "transform 1 of 4: ElasticTransform of torchvision is not available" in text
    assert "transform 2 of 4: Lambda runs Python (a lambda" in text
    assert "Mine is a subclass of Resize" in text


def test_arguments_that_are_not_built() -> None:
    v2 = needs("torchvision.transforms.v2")
    assert "lanczos" in refused(v2.Resize(3, interpolation=v2.InterpolationMode.LANCZOS))
    assert "lanczos" in refused(T.RandomResizedCrop(3, interpolation=1))
    assert "antialias=False" in refused(v2.Resize(3, antialias=False))
    assert to_ops(v2.Resize(3, interpolation="nearest", antialias=False), "")[0]["interpolation"] == "nearest"
    assert "finite" in refused(T.Normalize([float("nan")], [1.0]))
    assert "whole number" in refused(T.CenterCrop((2.5, 3)))  # type: ignore[arg-type]
    assert "two numbers" in refused(T.RandomResizedCrop(3, scale=(0.1, 0.2, 0.3)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda: T.RandomHorizontalFlip(1.5),
        lambda: T.RandomApply([], p=0.5),
        lambda: T.RandomApply([T.ToImage()], p=-1),
        lambda: T.Compose(T.ToImage()),  # type: ignore[arg-type]
        lambda: T.CenterCrop((1, 2, 3)),
        lambda: T.Resize((1, 2, 3)),
        lambda: T.Resize(None),
    ],
)
def test_wrong_arguments_fail_where_they_are_written(make: Any) -> None:
    with pytest.raises(ConfigError):
        make()


def test_a_list_that_holds_itself() -> None:
    endless: list[Any] = [T.ToImage()]
    endless.append(endless)
    assert "more than 32 deep" in refused(endless)


def test_calling_one_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"torchvision\.transforms\.v2"):
        T.ToTensor()("picture")
