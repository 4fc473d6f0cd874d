"""Datasets of the user's own, under torch's DataLoader and under stoker's: python -m bench.own --data folder-of-jpegs.

The same dataset object with the same keywords and two workers (bench/peers/own_dataset.py). The two take turns; what
counts is the median of the rounds' ratios. "beside" is the CPU of a sample minus that of the dataset's own code alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import meter, rig

# case: samples, and the least ratio of rates and the most of CPU per sample that must be reached, by (loader, key).
CASES: dict[str, tuple[int, dict[str, tuple[float, str]]]] = {
    "photos": (2400, {"rate": (1.1, "high"), "cpu": (1.0, "low")}),
    "floats": (12800, {"rate": (2.5, "high"), "cpu": (0.5, "low")}),
    "pixels": (25600, {"beside": (0.6, "low")}),
    "tiny": (512_000, {"rate": (1.0, "high")}),
    "tensors": (1_024_000, {"rate": (4.0, "high")}),
    "texts": (64_000, {"rate": (1.0, "high")}),
    "albumentations": (2400, {}),
    "split": (2400, {"cpu": (1 / 1.3, "low")}),  # against a Dataset of OpenCV and Albumentations
}
EVERYWHERE = {"first": (1.2, "low"), "pss": (1.0, "low")}


def measure(case: str, loader: str, args: argparse.Namespace, cpus: Sequence[int]) -> dict[str, Any]:
    samples = int(CASES[case][0] * args.scale)
    command: list[Any] = [rig.python_of(args.venv), "-m", "bench.peers.own_dataset", case, "--loader", loader]
    command += ["--samples", samples]
    if args.data is not None:
        command += ["--data", args.data]
    if args.seeding and loader == "stoker" and case == "tiny":
        command += ["--seeding", args.seeding]
    run = rig.quietest(command, cpus, f"{case}-{loader}", args.retries)
    start, stop = run.marks["start"], run.marks["stop"]
    return {
        "case": case,
        "loader": loader,
        "rate": stop["samples"] / (stop["wall"] - start["wall"]),
        "cpu": 1e6 * (stop["cpu"] - start["cpu"]) / stop["samples"],
        "first": start.get("first", 0.0),
        "pss": run.memory.get("pss", 0.0),
        "disturbed": run.disturbed,
        "left_behind": run.left_behind,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.own", description=__doc__)
    parser.add_argument("--data", type=Path, help="a folder of JPEGs; without it, no photographs")
    parser.add_argument("--out", type=Path, default=rig.RESULTS / "own.json")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--retries", type=int, default=1, help="of a run in which others used the processors")
    parser.add_argument("--only", nargs="+", choices=CASES)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of samples")
    parser.add_argument("--seeding", help="of stoker's loader for tiny samples: worker")
    parser.add_argument("--venv", default=".venv-bench/own")
    args = parser.parse_args()
    rig.may_write(args.out)
    meter.become_subreaper()
    cpus = rig.first_cpus(2)
    machine = rig.machine(cpus)
    cases = args.only or [c for c in CASES if args.data is not None or c not in ("photos", "albumentations", "split")]
    runs: list[dict[str, Any]] = []
    for number in range(args.repeats):
        for case in cases:
            for loader in ("stoker", "torch", *(("none",) if "beside" in CASES[case][1] else ())):
                one = measure(case, loader, args, cpus)
                runs.append(one | {"round": number})
                rig.say(
                    f"round {number + 1}  {case:15} {loader:7} {one['rate']:10.0f} samples/s {one['cpu']:9.1f} us "
                    f"first {one['first']:.2f} s  PSS {one['pss']:.0f} MiB  others {100 * one['disturbed']:.1f} %"
                )
    figures: dict[str, float] = {}
    gates, rows = [], []
    for case in cases:
        by = {
            name: [one for one in runs if one["case"] == case and one["loader"] == name]
            for name in ("stoker", "torch", "none")
        }
        ratios: dict[str, float] = {
            key: rig.middle(a[key] / b[key] for a, b in zip(by["stoker"], by["torch"], strict=True))
            for key in ("rate", "cpu", "first", "pss")
        }
        if by["none"]:
            ratios["beside"] = rig.middle(
                (a["cpu"] - n["cpu"]) / (b["cpu"] - n["cpu"])
                for a, b, n in zip(by["stoker"], by["torch"], by["none"], strict=True)
            )
        for key, (limit, better) in {**CASES[case][1], **EVERYWHERE}.items():
            gates.append(rig.Gate(f"{case}: {key} over torch's", ratios[key], limit, better, "x"))
        figures |= {f"{case}-{key}": value for key, value in ratios.items()}
        for name in ("stoker", "torch"):
            rate, cpu = (rig.middle(one[key] for one in by[name]) for key in ("rate", "cpu"))
            rows.append([case, name, "", f"{rate:.0f}", f"{cpu:.1f}"])
        rows[-2] += [f"{ratios['rate']:.2f}", f"{ratios['cpu']:.2f}"]
        rows[-1] += ["", ""]
    print(rig.table(["case", "loader", "", "samples/s", "CPU us", "x rate", "x CPU"], rows))
    document = {
        "question": "datasets of the user's own",
        "machine": machine,
        "settings": rig.settings(args),
        "runs": runs,
    }
    left = [one["left_behind"] for one in runs if one["left_behind"]]
    doubts = [f"processes were left behind: {left[0]}"] if left else []
    return rig.finish(args.out, document, gates, doubts, figures, (one["disturbed"] for one in runs))


if __name__ == "__main__":
    raise SystemExit(main())
