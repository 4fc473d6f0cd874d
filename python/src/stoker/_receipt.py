"""What a training loop really received, and whether that was the plan.

Receipts    the parts that one loader has received: each is a run of steps of a pass
verify_receipts   compares receipts of all ranks and of resumed pieces with the plan

The hash of every (place, sample) comes with the batch; here they are summed modulo 2**128.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from . import _client, _iterable
from ._errors import ConfigError
from ._wire import Message

VERSION = 1


class Part:
    """One run of steps of one pass."""

    def __init__(self, epoch: int, position: int, rank: int, world: int) -> None:
        self._facts = {"epoch": epoch, "from": position, "to": position, "rank": rank, "world_size": world}
        self._samples = 0
        self._sum = 0
        self._skipped: list[list[int]] = []
        self._replaced: list[list[int]] = []

    def count(self, message: Message) -> None:
        """Adds a batch that the loop received."""
        self._facts["to"] = message["position"]
        self._samples += message.get("real", 0)
        self._sum = (self._sum + int(message.get("sum", "0"), 16)) % (1 << 128)
        for bad in message.get("bad") or []:
            if bad["put"] < 0:
                self._skipped.append([bad["place"], bad["sample"]])
            else:
                self._replaced.append([bad["place"], bad["sample"], bad["put"]])

    @property
    def empty(self) -> bool:
        return self._facts["to"] == self._facts["from"]

    def told(self) -> dict[str, Any]:
        """As plain JSON."""
        told = {**self._facts, "samples": self._samples, "sum": f"{self._sum:032x}"}
        if self._skipped:
            told["skipped"] = [list(pair) for pair in self._skipped]
        if self._replaced:
            told["replaced"] = [list(three) for three in self._replaced]
        return told


def verify_receipts(receipts: Iterable[Mapping[str, Any]], spec: Any) -> dict[str, Any]:
    """Adds up receipts of all ranks and of the pieces of a resumed run, and compares them with the plan.

    receipts   what ``loader.receipt()`` returned on every rank
    spec       the stream: a stoker.DataLoader, a Spec as a dict, or the path of one as JSON

    Returns {"ok", "complete", "problems", "epochs"}. ok: every sample that the receipts cover came once, at its place,
    to one rank. complete: in addition, every epoch but the last is covered completely. epochs has an entry for each
    epoch with the items covered, and the samples received and planned. Only the index is read. Raises ConfigError if
    something is not a receipt.
    """
    remote = _remote(spec)
    found = [dict(receipt) if isinstance(receipt, Mapping) else receipt for receipt in receipts]
    if wrong := [receipt for receipt in found if not isinstance(receipt, dict) or "parts" not in receipt]:
        raise ConfigError(
            f"verify_receipts: {wrong[0]!r:.80} is not a receipt",
            hint="pass what loader.receipt() of every rank returned",
        )
    verdict: dict[str, Any] = remote.ask("verify", receipts=found)
    verdict.setdefault("problems", [])
    verdict["epochs"] = verdict.get("epochs") or []
    return verdict


def _remote(spec: Any) -> _client.Loader:
    if getattr(getattr(spec, "_settings", None), "iterates", False):
        _iterable.refuse(spec, "verify_receipts", "their receipts count samples: compare those numbers")
    opened = getattr(spec, "_asked", None)
    if callable(opened):
        found: _client.Loader = opened()
        return found
    if isinstance(spec, (str, os.PathLike)):
        with open(spec, encoding="utf-8") as file:
            try:
                spec = json.load(file)
            except ValueError as error:
                raise ConfigError(
                    f"verify_receipts: {os.fspath(file.name)} is not JSON",
                    cause=str(error),
                    hint="`stoker order SPEC --verify RECEIPT...` also reads YAML",
                ) from error
    if not isinstance(spec, Mapping):
        raise ConfigError(
            f"verify_receipts: spec is of type {type(spec).__name__}",
            hint="give a stoker.DataLoader, a Spec, or its path",
        )
    return _client.Loader(dict(spec), keeps=False)
