"""What remote data costs who reads local files: python -m bench.local --before ENGINE [--data F].

ENGINE is build/stoker of a checkout of an older commit, built there (make engine). The same client starts both engines,
in turns: the start of the process until its hello has been read, and its memory when it has loaded some batches and
rests. With a folder of JPEGs, two loaders take turns (bench/turns.py), and their rates are compared.

Both engines are copied, and the copies are read anew: how much of an executable counts as memory depends on how the
kernel got it into its cache, which for one that was just linked is in larger pieces. "own" is memory without files.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from bench import before, meter, pictures, rig, serving, turns

START_MS, MEMORY_MIB, RATE = 3.0, 8.0, 0.99
SAMPLES = 512  # of the dataset that is loaded before memory is read
PEER = ("-m", "bench.peers.engines")
THIS, OTHER = before.NAMES


def fresh(engine: Path, folder: Path, name: str) -> Path:
    """A copy of an executable that nobody has read since it was on the disk."""
    copy = folder / name
    shutil.copy(engine, copy)
    with copy.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return copy


def starts(engines: dict[str, Path], args: Any, cpu: int) -> tuple[list[dict[str, Any]], list[float]]:
    """Rounds of starts: of each engine the median in ms, wall and CPU. On one processor, so that the two are alike."""
    with contextlib.ExitStack() as stack:
        peer = serving.Server("starts")
        peer.open(stack, [rig.python_of(".venv"), *PEER, *map(str, engines.values())], [cpu])

        def once(number: int) -> tuple[dict[str, Any], float]:
            others = meter.Disturbance([cpu], lambda: [os.getpid(), *peer.pids()])
            answer = peer.ask(starts=args.starts)
            if peer.problem:
                raise rig.PeerError(peer.problem)
            found: dict[str, Any] = {"round": number, "disturbed": sum(others.shares())}
            for key in ("ms", "cpu_ms"):
                found[key] = {name: rig.middle(one) for name, one in zip(engines, answer[key], strict=True)}
            rig.say(f"round {number + 1} starts  " + "  ".join(f"{n} {ms:.2f} ms" for n, ms in found["ms"].items()))
            return found, found["disturbed"]

        once(-1)  # reads the executables
        found = rig.rounds(args.repeats, once)
    return found, [one["disturbed"] for one in found]


def resting(engines: dict[str, Path], args: Any, cpus: list[int]) -> list[dict[str, Any]]:
    """The memory of each engine, MiB, in rounds."""
    tree = pictures.build(rig.ROOT / "testdata" / "photos", SAMPLES, turns.BATCH)
    found: list[dict[str, Any]] = []
    for number in range(args.repeats):
        one: dict[str, Any] = {}
        for name, engine in engines.items():
            with contextlib.ExitStack() as stack:
                peer = serving.Server(f"rests-{name}")
                command = [rig.python_of(".venv"), *PEER, engine, "--data", tree.root]
                answer = peer.open(stack, command, cpus)
            if peer.problem:
                raise rig.PeerError(peer.problem)
            one[name] = {key: answer[key] for key in ("rss", "pss", "own")}
        found.append(one)
        rig.say(f"round {number + 1} memory  " + "  ".join(f"{n} {m['pss']:.1f} MiB" for n, m in one.items()))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.local", description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="the older engine")
    parser.add_argument("--data", type=Path, help="a folder of JPEGs; without it, no rates")
    parser.add_argument("--out", type=Path, default=rig.RESULTS / "local.json")
    parser.add_argument("--repeats", type=int, default=6, help="rounds")
    parser.add_argument("--starts", type=int, default=100, help="of each engine in a round")
    parser.add_argument("--turns", type=int, default=24, help="of each loader in a round")
    parser.add_argument("--batches", type=int, default=32, help=f"in a turn, {turns.BATCH} pictures each")
    parser.add_argument("--rows", nargs="+", default=["uint8", "float32"])
    args = parser.parse_args()
    rig.may_write(args.out)
    meter.become_subreaper()
    cpus = rig.first_cpus(2)
    given = dict(zip(before.NAMES, (rig.ROOT / "build" / "stoker", args.before.resolve()), strict=True))
    document: dict[str, Any] = {
        "question": "what remote data costs who reads local files",
        "machine": rig.machine(cpus),
        "settings": rig.settings(args),
        "before": before.commit(given["other"].parent.parent),
    }
    with tempfile.TemporaryDirectory() as folder:
        engines = {name: fresh(engine, Path(folder), name) for name, engine in given.items()}
        document["starts"], disturbed = starts(engines, args, cpus[0])
        document["memory"] = resting(engines, args, cpus)
        rates: dict[str, turns.Turns] = {}
        if args.data is not None:
            tree = pictures.build(args.data, turns.needed(args), turns.BATCH)
            sides = {name: turns.Side(engine) for name, engine in engines.items()}
            rates = {output: turns.in_turns(sides, tree, output, args, cpus) for output in args.rows}
    document["rates"] = [run for one in rates.values() for run in one.runs]

    figures = {f"{name}-mb": engine.stat().st_size / 1e6 for name, engine in given.items()}
    for key, what in (("ms", "start-ms"), ("cpu_ms", "start-cpu-ms")):
        rounds = [one[key] for one in document["starts"]]
        figures |= {f"{name}-{what}": rig.middle(one[name] for one in rounds) for name in given}
        figures[f"more-{what}"] = rig.middle(one[THIS] - one[OTHER] for one in rounds)
    for key in ("rss", "pss", "own"):
        rounds = [{name: one[name][key] for name in given} for one in document["memory"]]
        figures |= {f"{name}-{key}-mib": rig.middle(one[name] for one in rounds) for name in given}
        figures[f"more-{key}-mib"] = rig.middle(one[THIS] - one[OTHER] for one in rounds)
    gates = [
        rig.Gate("start of the engine, over the other's", figures["more-start-ms"], START_MS, "low", " ms"),
        rig.Gate("memory of an engine at rest, over the other's", figures["more-rss-mib"], MEMORY_MIB, "low", " MiB"),
    ]
    for output, one in rates.items():
        disturbed += one.disturbed
        gates.append(rig.Gate(f"{output}: images a second over the other's", one.rate, RATE, "high", "x"))
        figures |= {f"{output}-rate": one.rate, f"{output}-cpu": one.cpu}
    for name, value in figures.items():
        print(f"  {value:10.2f}  {name}")
    return rig.finish(args.out, document, gates, [], figures, disturbed)


if __name__ == "__main__":
    raise SystemExit(main())
