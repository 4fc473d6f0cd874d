"""A folder of images for each class, by torchvision's rules."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from ._datasets import _path, absolute
from ._errors import Problems
from ._fields import Field
from ._shown import shown
from ._stored import Pictures, picture
from ._types import JP, NP, TP

if TYPE_CHECKING:
    from ._types import AnyTuple, Dict

A = TypeVar("A")

# torchvision's list of extensions.
EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class ImageFolder(Pictures[TP, NP, JP], Generic[TP, NP, JP]):
    """Images in one folder per class, by the rules of torchvision.datasets.ImageFolder.

    Classes are the sorted names of the folders in ``root``; images are the files at any depth below them with one of
    torchvision's extensions. Samples are ``(image, label)``: without transforms, uint8 of shape (3, height, width) and
    an integer.

    transform    transforms of this package or of torchvision (v1 or v2), or a Compose of them
    allow_empty  accept classes without an image
    storage_options   how the store that has the folder is reached (see ``stoker.WebDataset``)

    ``target_transform``, ``loader`` and ``is_valid_file`` are Python functions and must be None.

    Raises ConfigError: a transform that is not supported, no such folder, no image in it.
    """

    extensions = EXTENSIONS

    _form = "tuple"
    _format = "folder"
    _listed: dict[str, Any] | None = None  # values that attributes return
    _fixed: ClassVar[Mapping[str, str]] = {
        **Pictures._fixed,
        "root": "",
        "allow_empty": "",
        "loader": "leave it out: the engine reads the usual image formats",
        "is_valid_file": "leave it out; move unwanted files out of the folder",
        "transforms": "assign to transform; map targets in the training loop: labels = table[labels]",
        "extensions": "stoker.files(patterns) loads the files that you list",
        **dict.fromkeys(
            ("samples", "imgs"), "choose samples with DataLoader(sampler=ids), or list files: stoker.files(paths)"
        ),
        **dict.fromkeys(
            ("targets", "class_to_idx"),
            "map the labels in the training loop: labels = table[labels]; or read them from a table with stoker.Table",
        ),
    }
    _overrides: ClassVar[Mapping[str, str]] = {
        **Pictures._overrides,
        **dict.fromkeys(
            "find_classes make_dataset loader is_valid_file transforms extensions samples imgs targets "
            "class_to_idx".split(),
            "the engine lists the files and numbers the classes",
        ),
    }

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Any = None,
        target_transform: Callable[[int], Any] | None = None,
        loader: Callable[[str], Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        problems = Problems("ImageFolder")
        functions = {"target_transform": target_transform, "loader": loader, "is_valid_file": is_valid_file}
        for name, function in functions.items():
            if function is not None:
                problems.add(f"{name} is a Python function, but samples are made without Python", self._fixed[name])
        self.root = _path(root, "root", problems)
        problems.raise_any()
        self.allow_empty = bool(allow_empty)
        self._table: dict[str, list[Any]] | None = None
        image = picture(transform, "ImageFolder(transform=...)")
        self._transform, self._pictures = transform, ("image",)
        image.spec["from"] = "image"
        label = Field("label", source="label", decode="int")
        super().__init__(
            self.root, [image, label], allow_empty=self.allow_empty or None, storage_options=storage_options
        )

    if TYPE_CHECKING:

        def select(self, *fields: str | Field) -> ImageFolder[Dict, Dict, Dict]: ...

        def to_tuple(self, *fields: str | Field) -> ImageFolder[AnyTuple, AnyTuple, AnyTuple]: ...

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The number of every class. Like the other lists of this class, it cannot be changed in place."""
        return self._attribute("class_to_idx", lambda: {name: number for number, name in enumerate(self.classes)})

    @property
    def targets(self) -> list[int]:
        """The label of every sample."""
        return self._attribute("targets", lambda: list(self._columns()["label"]))

    @property
    def samples(self) -> list[tuple[str, int]]:
        """The path and the label of every sample."""
        return self._attribute(
            "samples", lambda: list(zip(self._columns()["path"], self._columns()["label"], strict=True))
        )

    @property
    def imgs(self) -> list[tuple[str, int]]:
        """``samples``, under torchvision's other name."""
        return self._attribute("imgs", lambda: list(self.samples))

    def _attribute(self, name: str, make: Callable[[], A]) -> A:
        """The value of an attribute, made once: loops ask for ``dataset.samples[i]`` for every i."""
        if self._listed is None:
            self._listed = {}
        if name not in self._listed:
            self._listed[name] = self._frozen(name, make())
        found: A = self._listed[name]
        return found

    def _columns(self) -> dict[str, list[Any]]:
        if self._table is None:
            found = self._look().table(["label", "path"])
            if "://" not in self.root:  # as in torchvision: below the root as it was given
                below = os.path.join(os.path.normpath(absolute(self.root)), "")
                found["path"] = [os.path.join(self.root, path.removeprefix(below)) for path in found["path"]]
            self._table = found
        return self._table

    def __repr__(self) -> str:
        return f"ImageFolder({shown(self.root)!r}, transform={self.transform!r})"
