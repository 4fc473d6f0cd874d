"""What pyproject.toml cannot say: the version is in the file VERSION at the top, and the wheel carries the engine.

STOKER_WHEEL_ENGINE names the engine to carry (default: build/stoker), and STOKER_WHEEL_LIBRARIES is what
tools/linked.sh says of the libraries in it, which NOTICE promises. A wheel without an engine is refused, and so is a
source distribution: the engine's sources are not below this folder, and they take Go and static C libraries.
"""

import os
import re
import shutil
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

TOP = Path(__file__).resolve().parent.parent
VERSION = (TOP / "VERSION").read_text(encoding="ascii").strip()


class BuildWithEngine(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return  # the package finds build/stoker in the checkout
        engine = Path(os.environ.get("STOKER_WHEEL_ENGINE", TOP / "build" / "stoker"))
        if not engine.is_file():
            raise SystemExit(f"there is no engine at {engine}: run `make engine`, or set STOKER_WHEEL_ENGINE")
        into = Path(self.build_lib) / "stoker" / "_engine"
        into.mkdir(parents=True, exist_ok=True)
        shutil.copy2(engine, into / "stoker")
        (into / "stoker").chmod(0o755)
        (into / "VERSION").write_text(VERSION + "\n", encoding="ascii")
        if libraries := os.environ.get("STOKER_WHEEL_LIBRARIES"):
            (into / "LIBRARIES").write_text(libraries + "\n", encoding="utf-8")


class PlatformWheel(bdist_wheel):
    """The client runs on every Python, the engine on one kind of machine."""

    def get_tag(self) -> tuple[str, str, str]:
        platform = super().get_tag()[2]
        # The engine is linked statically: no glibc is too old for it. The tag says for which kernels it is meant.
        return "py3", "none", re.sub("^linux_", "manylinux_2_28_", platform)


class NoSources(sdist):
    def run(self) -> None:
        raise SystemExit(
            "stoker has no source distribution: install a wheel, or build one in a checkout with `make wheel`. "
            "To build a wheel only: python -m build --wheel python"
        )


class WithEngine(Distribution):
    def has_ext_modules(self) -> bool:
        return True  # so that the wheel is one of a platform


def readme() -> str:
    """README.md without links into the repository, which lead nowhere on a page of a package index."""
    text = (TOP / "README.md").read_text(encoding="utf-8")
    return re.sub(r"\[([^\]]*)\]\((?!https?://|#)[^)]*\)", r"\1", text)


setup(
    version=VERSION,
    long_description=readme(),
    long_description_content_type="text/markdown",
    distclass=WithEngine,
    cmdclass={"build_py": BuildWithEngine, "bdist_wheel": PlatformWheel, "sdist": NoSources},
    options={"build": {"build_base": str(TOP / "build" / "python")}},
)
