"""What pyproject.toml cannot say: the version is in the file VERSION at the top, and the wheel carries the engine.

STOKER_WHEEL_ENGINE names the engine to carry (default: build/stoker). A wheel without one is refused.
"""

import os
import shutil
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

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
        for text in ("LICENSE", "NOTICE"):
            if (TOP / text).is_file():
                shutil.copy2(TOP / text, into / text)
        (into / "VERSION").write_text(VERSION + "\n", encoding="ascii")


class PlatformWheel(bdist_wheel):
    """The client runs on every Python, the engine on one kind of machine."""

    def get_tag(self) -> tuple[str, str, str]:
        platform = super().get_tag()[2]
        # The engine is linked statically: no glibc is too old for it, and 2.17 is the oldest that pip knows well.
        return "py3", "none", platform.replace("linux_", "manylinux2014_", 1) if "linux_" in platform else platform


class WithEngine(Distribution):
    def has_ext_modules(self) -> bool:
        return True  # so that the wheel is one of a platform


setup(
    version=VERSION,
    distclass=WithEngine,
    cmdclass={"build_py": BuildWithEngine, "bdist_wheel": PlatformWheel},
    options={"build": {"build_base": str(TOP / "build" / "python")}},
)
