"""The hook in a process that runs already, for one loop: what stoker.doctor in Python loads into itself.

sitecustomize.py dresses a process for its life. A guest leaves: doors are taken from torch's classes again, nothing
is written any more, and what cannot be taken back (the handlers at fork) does nothing. Loaders that were made
before are watched as well as new ones: doors hang in classes.
"""

import os
import sys
import weakref

import stoker_watch_fetch as fetch
import stoker_watch_loader as loaders
import stoker_watch_moves as moves
import stoker_watch_process as core
from stoker_watch_door import Door, trouble

_active = False
_handlers = False


def begin(folder: str, loader: object, where: str) -> None:
    """Watches torch's loaders here from now on, and writes into the folder; `where` is the place that the report
    gives for `loader`. Workers that are forked are watched, and under spawn those that find the hook at their start
    (PYTHONPATH)."""
    global _active, _handlers
    core.process = core.Process(folder, core._role(folder))
    if not _handlers:
        _handlers = True
        os.register_at_fork(
            before=_if(core._before_fork), after_in_parent=_if(core._after_fork), after_in_child=_if(core._in_child)
        )
    _active = True
    _forget()
    place = weakref.ref(loader)
    loaders._places[id(loader)] = (place, where, {}, [])
    core.process.write()
    loaders.dress(sys.modules["torch.utils.data.dataloader"])


def end() -> None:
    """Takes it all down, and writes the last line."""
    global _active
    try:
        core.process.pulse.stop()
        core.process.write()
    finally:
        _active = False
        torch = sys.modules["torch.utils.data.dataloader"]
        for module in (torch, torch._utils.fetch):
            for kind in vars(module).copy().values():
                if isinstance(kind, type):
                    _undress(kind)
        moves.end()
        fetch._doors.down()
        core.process.stages, core.process.loaders = [], []
        _forget()


def _forget() -> None:
    loaders._loaders.clear()
    loaders._places.clear()
    loaders._building.clear()
    loaders._count = 0


def _undress(kind: type) -> None:
    for name, value in vars(kind).copy().items():
        if isinstance(value, Door):
            setattr(kind, name, value.original)


def _if(handler):
    def handle() -> None:
        try:
            if _active:
                handler()
        except Exception as error:
            trouble(error)

    return handle
