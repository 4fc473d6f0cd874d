"""What stoker's own loaders tell the doctor's hook. It sees torch's from outside; for stoker's, the engine counts, and
only the client knows which line of the script made one. Without the hook in this process, nothing happens."""

from __future__ import annotations

import sys
from typing import Any


def location() -> str:
    """FILE:LINE of the calling script, in the hook's form; "" without a hook."""
    hook = _hook()
    return str(hook.caller()) if hook is not None else ""


def opened(number: int, where: str) -> None:
    """The engine has opened, under this number, the loader that was made there."""
    hook = _hook()
    if hook is not None and where:
        hook.of_stoker(number, where)


def _hook() -> Any:
    hook = sys.modules.get("stoker_watch_process")
    return hook if hasattr(hook, "of_stoker") and hasattr(hook, "process") else None
