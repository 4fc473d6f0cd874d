"""The comparison of augmentations (bench.augment) says what it did not measure, and leaves out no operation."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from conftest import TOP
from needs import needs

sys.path.insert(0, str(TOP))
from bench import figures, rig
from bench.augment.operations import OPERATIONS, REQUIRED


def test_a_gate_without_a_figure_is_missing_and_not_reached() -> None:
    gate = rig.Gate("ColorJitter, times as fast as torchvision", None, 5.0, "high", "x")
    assert not gate.reached
    assert gate.line().split() == "MISSING ColorJitter, times as fast as torchvision: no figure, must be >= 5x".split()
    again = rig.Gate.from_dict(json.loads(json.dumps(gate.as_dict())))
    assert again == gate


def test_every_operation_is_torchvisions_and_can_be_made() -> None:
    needs("torchvision")
    from bench.augment.operations import torchvision_of

    for operation in OPERATIONS.values():
        assert type(torchvision_of(operation)).__name__ == operation.of


def test_what_stoker_runs_is_read_from_torchvisions_own_objects() -> None:
    """A program, or the reason why there is none: nothing else."""
    needs("torchvision")
    from bench.augment.make import program

    for operation in OPERATIONS.values():
        found = program(operation)
        assert found.keys() in ({"ops"}, {"missing"})
        assert found.get("missing", "a reason")
    assert program(OPERATIONS["Resize bicubic"])["ops"][0]["interpolation"] == "bicubic"


def result(**figures_of: float) -> dict[str, Any]:
    rows = [{"operation": "Resize bicubic", "peer": "stoker"}, {"operation": "AugMix", "peer": "torchvision"}]
    return {"operations": {"machine": {}, "rows": rows, "figures": figures_of}}


def test_the_table_says_what_is_missing(tmp_path: Path) -> None:
    found = {
        "Resize bicubic stoker, us": 115.6,
        "Resize bicubic torchvision, us": 322.2,
        "Resize bicubic over torchvision": 2.79,
        "AugMix torchvision, us": 10890.0,
    }
    (tmp_path / "bench" / "results").mkdir(parents=True)
    (tmp_path / "bench" / "results" / "augment.json").write_text(json.dumps(result(**found)))
    table = figures.augment_table(figures.Results(tmp_path)).splitlines()
    assert table[2].startswith("| `Resize bicubic` | 116 us | 322 us, 2.8x | - |")
    assert table[3].startswith("| `AugMix` | missing | 10,890 us | - |")


def test_a_result_that_leaves_something_out(tmp_path: Path) -> None:
    """Of every operation and peer: a figure or a reason, and every figure to reach that applies."""
    (tmp_path / "bench" / "results").mkdir(parents=True)
    whole: dict[str, Any] = {"figures": {}, "gates": [], "missing": {}}
    for name in OPERATIONS:
        whole["figures"] |= {f"{name} {peer}, us": 10.0 for peer in ("stoker", *REQUIRED)}
    for peer in ("stoker", *REQUIRED):
        whole["missing"][peer] = {}
    del whole["figures"]["AugMix dali, us"]
    whole["missing"]["dali"]["AugMix"] = "DALI has none"

    def problems() -> list[str]:
        (tmp_path / "bench" / "results" / "augment.json").write_text(json.dumps({"operations": whole}))
        return list(figures.incomplete(figures.Results(tmp_path)))

    assert any("augment.json: no figure to reach for AugMix over torchvision" in said for said in problems())
    for name, operation in OPERATIONS.items():
        for peer, limits in REQUIRED.items():
            if limits[0 if operation.heavy else 1] is not None and f"{name} {peer}, us" in whole["figures"]:
                whole["gates"].append({"what": f"{name}, times as fast as {peer}"})
    assert problems() == []
    del whole["figures"]["AugMix stoker, us"]
    assert problems() == ["bench/results/augment.json: not one of a figure and a reason for AugMix by stoker"]
    whole["missing"]["stoker"]["AugMix"] = "AugMix is not available in the engine"
    assert problems() == []
