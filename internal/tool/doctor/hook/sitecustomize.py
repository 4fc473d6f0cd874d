"""Begins the watch of an unchanged script, then runs the sitecustomize that this file hides.

Python runs it at its start because its folder leads PYTHONPATH. It owns three promises: nothing happens without a
writable folder in STOKER_DOCTOR_DIR; the script's sys.path is what it would be without us; another sitecustomize
runs, and fails, as if it were the first.

It parses under any Python, and its modules need 3.10: an older one runs the script unwatched and says nothing.
Modules of the standard library that the interpreter has not loaded by itself are not imported: the script's folder
is not on sys.path yet, and a script that brings a json.py of its own must still get that one.
"""

import _frozen_importlib
import _frozen_importlib_external
import os
import sys

_PARTS = ("look", "moves", "calls", "lines", "fetch", "steps", "loader")  # in the order in which they import each other


def _load(here, part):
    """A module of the hook, found by place: its folder leaves sys.path before the script runs."""
    name = "stoker_watch_" + part
    if name not in sys.modules:
        spec = _frozen_importlib_external.spec_from_file_location(name, os.path.join(here, name + ".py"))
        module = _frozen_importlib.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


class _Finder:
    """Waits for torch's DataLoader and dresses it the moment its module has run.

    A finder is exact, a thread that polls sys.modules is not: a script may build its loader milliseconds after the
    import. Other libraries need no finder: the stage looks for them when it times a batch.
    """

    def __init__(self, here):
        self.here = here

    def find_spec(self, name, path=None, target=None):
        if name != "torch.utils.data.dataloader":
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                break
        else:
            return None
        try:
            door = _load(self.here, "door")
            spec.loader.exec_module = door.StandIn(spec.loader.exec_module, door.then(self._dress))
        except Exception as error:
            door.trouble(error)
        return spec

    def _dress(self):
        torch = sys.modules.get("torch.utils.data.dataloader")
        if torch is None or not hasattr(torch, "DataLoader"):
            return  # the import failed, and the script hears of it from torch
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        torch.__spec__.loader.__dict__.pop("exec_module", None)
        for part in _PARTS:
            _load(self.here, part)
        sys.modules["stoker_watch_loader"].dress(torch)


def _watch(here):
    out = os.environ.get("STOKER_DOCTOR_DIR")
    if not out or not os.path.isdir(out) or not os.access(out, os.W_OK | os.X_OK):
        return
    _load(here, "door")
    _load(here, "process").begin(os.path.abspath(out))
    sys.meta_path.insert(0, _Finder(here))


def _next_sitecustomize():
    spec = _frozen_importlib_external.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or not hasattr(spec.loader, "exec_module"):
        return
    module = _frozen_importlib.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_here = os.path.dirname(os.path.realpath(__file__))
try:
    sys.path[:] = [_p for _p in sys.path if os.path.realpath(_p) != _here]
    _watch(_here)
except Exception:
    pass
_next_sitecustomize()
