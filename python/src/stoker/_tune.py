"""stoker.tune: finds the settings with which a loader is fast enough, and keeps them in a playbook.

The command ``stoker tune`` decides what to measure next and which settings to choose, and makes the table, the plot and
the playbook. It asks over a pipe; loaders are made and measured here.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import _command, _notice
from ._benchmark import benchmark
from ._datasets import Dataset, absolute
from ._device_jpeg import SIXTEENTHS
from ._errors import ConfigError, Problems, from_wire, many, whole
from ._mixture import in_python
from ._numbers import scalar
from ._process import find
from ._shown import shown_all, shown_text
from ._spec import Settings

FILE = "stoker.playbook.yaml"
_MAKE = "lambda **settings: DataLoader(dataset, batch_size=64, **settings)"
_SHARES = list(range(0, SIXTEENTHS + 1, 2))  # of the rows that a device decodes, to try
_RUN = _command.Verb("tune", "tuning", "it starts again from the beginning")


class Tuning:
    """The result of ``stoker.tune``; ``str()`` gives the table and all remarks.

    settings   what to pass to the loader, by its own keywords; empty if noise is larger than the differences: the
               report then says why in "doubt"
    report     everything as a dict of plain values: table, choice, best, hardware, changes, files
    """

    def __init__(self, settings: dict[str, Any], report: dict[str, Any], text: str) -> None:
        self.settings = settings
        self.report = report
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Tuning({', '.join(f'{key}={value}' for key, value in self.settings.items())})"


def tune(
    make_loader: Callable[..., Any],
    *,
    workers: Sequence[int] | None = None,
    prefetch: Sequence[int] | None = None,
    pin_memory: Sequence[bool] | None = None,
    batch_size: Sequence[int] | None = None,
    decode_device: Any = None,
    step: float | Callable[[Any], Any] = 0.0,
    budget: float = 300.0,
    exhaustive: bool = False,
    name: str | None = None,
    playbook: str | None = FILE,
    plot: str | None = "stoker.tune",
    quiet: bool = False,
) -> Tuning:
    """Finds the fewest workers, then the least prefetch, with which a loader is within 5 % of its best on this machine.
    With ``decode_device``, first the smallest share of the rows that the device decodes.

    make_loader   a function that makes a loader of stoker's or torch's from keywords, such as
                  ``lambda **settings: torch.utils.data.DataLoader(data, batch_size=64, shuffle=True, **settings)``.
                  It gets num_workers; prefetch_factor if there are workers (for stoker's loaders prefetch); and
                  pin_memory, batch_size and decode_device if they are searched. It need not accept all of these
    workers, prefetch, pin_memory, batch_size   the values to try. Default: workers by the cores; prefetch 2, 4 and 8
                  (less leaves no reserve for a late batch); pin_memory False, and True if CUDA is available; the
                  loader's batch size
    decode_device  the device= of stoker's loader, such as "cuda": the share of the rows that it decodes is searched,
                  too. make_loader gets ``decode_device=("cuda", 0.5)`` and the like, and None for the engine alone
    step          seconds of a training step, or a function of the batch: the search then stops at what feeds it
    budget        approximate seconds for everything
    exhaustive    measures every combination, not only those that a model of the throughput leaves open
    name          the dataset's name in the playbook; default: its path or class
    playbook      the file to which the choice is written; None: none
    plot          the plot of throughput and CPU over workers, without .svg and .png; None: none
    quiet         does not print the report

    Beside other work there may be no recommendation: if measurements of one setting differ more than the settings do,
    or other processes use a quarter of the cores. Then ``settings`` is empty, and the playbook is not changed.

    When it is run again, the report says what changed since the entry in the playbook: hardware, dataset, settings, or
    figures by more than their noise. A setting that fails is shown with its error; if none works, the first error is
    raised.
    """
    problems = Problems("tune")
    workers, prefetch, batch_size = (
        [*map(scalar, values)] if isinstance(values, Iterable) and not isinstance(values, (str, bytes)) else values
        for values in (workers, prefetch, batch_size)
    )
    if not callable(make_loader):
        problems.add(f"make_loader is of type {type(make_loader).__name__}", f"give a function: {_MAKE}")
    elif isinstance(make_loader, type) and make_loader.__name__ == "DataLoader":
        problems.add("make_loader is the class DataLoader, which would be called without a dataset", f"write {_MAKE}")
    if isinstance(decode_device, tuple):
        problems.add(f"decode_device is {decode_device!r:.80}", "give the device alone: its share is what is searched")
    if not isinstance(budget, (int, float)) or not 0 < budget < float("inf"):
        problems.add(f"budget is {budget!r}", "give seconds")
    for key, values in (("workers", workers), ("prefetch", prefetch), ("batch_size", batch_size)):
        if values is not None and (isinstance(values, (str, bytes)) or not values or not all(map(whole, values))):
            problems.add(f"{key} is {values!r}", "give a list of whole numbers to try")
    problems.raise_any()
    maker = _Maker(make_loader, workers, batch_size, decode_device)
    pins = list(pin_memory) if pin_memory is not None else [False, True] if _cuda() else [False]
    space: dict[str, Any] = {
        "workers": list(workers or []),
        "prefetch": list(prefetch or []) if maker.takes_prefetch else [2],
        "pin_memory": pins if maker.takes("pin_memory") else [False],
        "batch_size": list(batch_size or [maker.batch_size]),
        "all": exhaustive,
    }
    if maker.shares:
        space["decode_sixteenths"] = maker.shares
    maker.given = {"pin_memory": len(space["pin_memory"]) > 1 or pin_memory is not None, "batch_size": bool(batch_size)}
    ask = {
        "loader": maker.kind,
        "dataset": maker.digest,
        "decode_device": maker.decodes,
        "name": name or maker.name,
        "samples": maker.samples,
        "step_s": 0.0 if callable(step) else float(step),
        "space": space,
        "budget_s": float(budget),
        "playbook": absolute(playbook) if playbook else "",
        "plot": absolute(plot) if plot else "",
    }
    answer = _converse(ask, lambda settings, seconds: maker.measure(settings, seconds, step))
    report = answer["report"]
    tuned = Tuning({} if report.get("doubt") else maker.keywords(report["choice"]), report, answer["text"])
    if not quiet:
        print(tuned, end="")
    return tuned


class _Maker:
    """Makes loaders with the user's function, and remembers facts about the first one."""

    def __init__(
        self,
        make: Callable[..., Any],
        workers: Sequence[int] | None,
        batch_size: Sequence[int] | None,
        decode_device: Any = None,
    ) -> None:
        self._make = make
        self.given: dict[str, bool] = {}  # keywords that are searched
        self._names: set[str] | None = None  # keywords it accepts; None: any
        self._needs: dict[str, Any] = {}  # those it requires
        with contextlib.suppress(TypeError, ValueError):  # CPUs
            parameters = inspect.signature(make).parameters.values()
            if all(p.kind is not inspect.Parameter.VAR_KEYWORD for p in parameters):
                self._names = {p.name for p in parameters if p.kind is not inspect.Parameter.POSITIONAL_ONLY}
            usual = {"prefetch": 2, "prefetch_factor": 2, "pin_memory": False, "batch_size": (batch_size or [1])[0]}
            self._needs = {p.name: usual[p.name] for p in parameters if p.default is p.empty and p.name in usual}
        if not self.takes("num_workers"):
            raise ConfigError(
                "tune: make_loader does not accept num_workers",
                hint=f"give a function of keywords: {_MAKE}",
            )
        self.kind = ""
        self.decode_device = decode_device  # None: its share is not searched
        self.decodes = ""  # the kind of device that decodes
        self.shares: list[int] = []  # of the rows, in sixteenths
        if decode_device is not None and not self.takes("decode_device"):
            raise ConfigError(
                "tune: make_loader does not accept decode_device, whose share is searched",
                hint=f"give a function of keywords: {_MAKE}",
            )
        more = {} if decode_device is None else {"decode_device": decode_device}
        first = self._made({**self._needs, **more, "num_workers": max(1, min(workers or [1]))})
        if first is None or isinstance(first, Dataset):
            raise ConfigError(
                f"tune: make_loader returned {'None' if first is None else f'a dataset ({type(first).__name__})'}",
                hint=f"return the loader: {_MAKE}",
            )
        try:
            self.kind = _kind(first)
            self._look_at_decoding(first)
            self.batch_size = getattr(first, "batch_size", None) or 1
            dataset = getattr(first, "dataset", None)
            self.digest, self.name, self.samples = _known(first if dataset is None else dataset)
            if dataset is None:
                self.samples = 0  # its length is in batches
        finally:
            _close(first)

    def _look_at_decoding(self, first: Any) -> None:
        """Remembers which shares of the rows a device may decode: all, or the only one that the user's loaders have."""
        settings = getattr(first, "_settings", None)
        if isinstance(settings, Settings) and settings.decoding is not None and settings.target is not None:
            self.decodes = settings.target.kind
            self.shares = [settings.decoding.share] if self.decode_device is None else _SHARES
        elif self.decode_device is not None:
            raise ConfigError(
                f"tune: decode_device is {self.decode_device!r:.80}, but make_loader returned a loader that decodes "
                "nothing on a device",
                hint="pass decode_device on to a loader of stoker's: lambda **settings: stoker.DataLoader(dataset, "
                "device='cuda', **settings)",
            )

    @property
    def prefetch(self) -> str:
        """The loader's keyword for prefetch."""
        return "prefetch" if self.kind == "stoker" and self.takes("prefetch") else "prefetch_factor"

    @property
    def takes_prefetch(self) -> bool:
        return self.takes(self.prefetch)

    def takes(self, keyword: str) -> bool:
        return self._names is None or keyword in self._names

    def _made(self, keywords: dict[str, Any]) -> Any:
        with warnings.catch_warnings():  # torch warns about the number of workers
            warnings.filterwarnings("ignore", message="This DataLoader will create")
            return self._make(**keywords)

    def keywords(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings of the command, under the loader's own keywords."""
        found: dict[str, Any] = {"num_workers": settings["num_workers"]}
        if settings["num_workers"] > 0 and self.takes_prefetch:
            found[self.prefetch] = settings["prefetch"]
        elif self.prefetch in self._needs:
            found[self.prefetch] = None
        for key in ("pin_memory", "batch_size"):
            if self.given.get(key) or key in self._needs:
                found[key] = settings[key]
        if self.decode_device is not None:
            share = settings.get("decode_sixteenths", 0)
            found["decode_device"] = (self.decode_device, share / SIXTEENTHS) if share else None
        return found

    def measure(self, settings: Mapping[str, Any], seconds: float, step: Any) -> dict[str, float]:
        loader = self._made(self.keywords(settings))
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="This DataLoader will create")
                found = benchmark(loader, seconds=seconds, step=step)
        finally:
            _close(loader)
        return {
            "samples_per_second": found.samples_per_second,
            "batches_per_second": found.batches_per_second,
            "cores_busy": found.cores_busy,
            "first_batch_s": found.first_batch,
            "spread": found.spread,
        }


def _close(loader: Any) -> None:
    if callable(close := getattr(loader, "close", None)):
        close()


def _kind(loader: Any) -> str:
    for kind in type(loader).__mro__:
        top = kind.__module__.partition(".")[0]
        if kind.__name__ == "DataLoader" and top in ("stoker", "torch"):
            return top
    return type(loader).__qualname__


def _known(dataset: Any) -> tuple[str, str, int]:
    """A digest, a name and the length of a dataset, 0 if unknown. For stoker's own, the digest is that of their index;
    for others, of class, length and the path they have: what can be known without reading them."""
    kind: type[Any] = type(dataset)
    given = next((v for key in ("root", "path", "urls", "url") if (v := getattr(dataset, key, None))), "")
    where = str(shown_all(given) if isinstance(given, (str, list)) else given)
    name = where or f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(dataset, Dataset) and not in_python(dataset):
        recipe = dataset._recipe().dataset
        paths = recipe.get("path") if isinstance(recipe, Mapping) else None
        read = shown_text(" ".join(paths) if isinstance(paths, list) else str(paths or ""))
        info = dataset._remote().info()
        return info.digest, where or read or kind.__name__, info.samples
    length = None
    with contextlib.suppress(TypeError, NotImplementedError):
        length = len(dataset)
    what = json.dumps([kind.__module__, kind.__qualname__, length, where])
    return hashlib.sha256(what.encode()).hexdigest()[:32], name, length or 0


def _cuda() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_available())


def _converse(
    ask: Mapping[str, Any], measure: Callable[[Mapping[str, Any], float], dict[str, float]]
) -> dict[str, Any]:
    """Asks the command what to measure until it has enough, and returns its last answer."""
    bar = _notice.Progress()
    begin, measured = time.monotonic(), 0
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [find(), "tune", "--line"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            _say(child, ask)
            for line in child.stdout:
                told = _command.read_line(line)
                if "report" in told:
                    child.stdin.close()
                    child.wait()
                    return told
                settings = told["measure"]
                spent = int(time.monotonic() - begin)
                what = many(settings["num_workers"], "worker")
                if ask["decode_device"]:
                    what += f", {settings.get('decode_sixteenths', 0)}/{SIXTEENTHS} on the device"
                bar.show(spent, int(ask["budget_s"]), f"tuning, {what}: seconds")
                try:
                    answer: dict[str, Any] = {"figures": measure(settings, told["seconds"])}
                    measured += 1
                except Exception as error:
                    if not measured:  # nothing works, and the user should see the reason
                        raise
                    answer = {"failed": f"{type(error).__name__}: {error}"}
                _say(child, answer)
            status = child.wait()
        except BaseException:
            _command.end(child)
            raise
        finally:
            bar.close()
            for pipe in (child.stdin, child.stdout):
                with contextlib.suppress(OSError):
                    pipe.close()
        errors.seek(0)
        words = errors.read().decode(errors="replace").splitlines()
    for line_ in words:
        told = _command.read_line(line_.encode())
        if "error" in told:
            raise from_wire(told["error"])
    raise _command.died(_RUN, status, words)


def _say(child: subprocess.Popen[bytes], message: Mapping[str, Any]) -> None:
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # its messages come through its other pipes
        child.stdin.write(json.dumps(message).encode() + b"\n")
        child.stdin.flush()


# The playbook.


def of_playbook(said: Any, settings: Settings, dataset: Dataset) -> Settings:
    """Settings with the playbook's values for this machine and dataset, where the user did not give them. A loader that
    decodes on a device uses what was measured with that, and others what was measured without.

    A missing playbook is an error: its name is wrong, or nothing has been tuned yet. A missing entry is not: a job that
    waited for its machine should run, with the defaults and a warning that says what is missing.
    """
    if not isinstance(said, str) or not (said == "playbook" or said.endswith((".yaml", ".yml"))):
        raise ConfigError(
            f"DataLoader: tune is {said!r}", hint=f'tune="playbook" reads {FILE} here, or give the path of a playbook'
        )
    path = FILE if said == "playbook" else said
    digest, name, samples = _known(dataset)
    about = [f"--find={digest}", f"--find-name={name}", f"--find-samples={samples}"]
    if settings.decoding is not None and settings.target is not None:
        about.append(f"--find-device={settings.target.kind}")
    told = _command.run([find(), "tune", *about, f"--playbook={absolute(path)}", "--json"], _RUN)
    where = Path(path).name
    if told.get("entry") is None:
        _notice.warn(f"{where} has {_unlike(told, digest)}: the defaults are used; run stoker tune or stoker.tune here")
        return settings
    found, line = _taken(told["entry"], settings)
    _notice.say(f"{where}: {line}")
    return found


def _unlike(told: Mapping[str, Any], digest: str) -> str:
    """What a playbook has instead of a matching entry, and how that differs."""
    near = told.get("near")
    if near is None:
        names = [str(name) for name in told.get("names") or []]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return "no entry for this dataset, " + (f"only for {', '.join(names[:3])}{more}" if names else "nor any other")
    changes = []
    for change in told.get("changes") or []:
        before, after = change["before"], change["after"]
        if change["what"] == "digest":
            before, after = before[:8], after[:8]
        changes.append(f"{change['what']} {before} -> {after}")
    differs = f" ({', '.join(changes)})" if changes else ""
    if any(change["what"] == "decode_device" for change in told.get("changes") or []):
        return "no entry for this dataset and decode_device; the nearest" + differs
    if near["dataset"] == digest:
        return "an entry for another machine" + differs
    if any(change["what"] == "name" for change in told["changes"]):
        return "no entry for this dataset; the nearest" + differs
    return f"no entry for this dataset as it is now, only for {near['name']} as it was on {near['date'][:10]}{differs}"


def _taken(entry: Mapping[str, Any], settings: Settings) -> tuple[Settings, str]:
    """Settings completed from an entry, and a line that says which came from where."""
    chosen = entry["settings"]
    found, taken, own = settings, [], []
    if settings.workers is None:
        found = replace(found, workers=int(chosen["num_workers"]))
        taken.append(f"num_workers={found.workers}")
    else:
        own.append(f"num_workers={settings.workers}")
    if settings.prefetch is not None:
        own.append(f"prefetch={settings.prefetch}")
    elif settings.prefetch_factor is not None:
        own.append(f"prefetch_factor={settings.prefetch_factor}")
    elif chosen["prefetch"]:
        found = replace(found, prefetch=int(chosen["prefetch"]))
        taken.append(f"prefetch={found.prefetch}")
    if chosen["pin_memory"] and not settings.pin:
        found = replace(found, pin=True)
        taken.append("pin_memory=True")
    decoding, target = settings.decoding, settings.target
    if decoding is not None and target is not None:
        share = decoding.share if decoding.given else int(chosen.get("decode_sixteenths", 0))
        found = replace(found, decoding=decoding._replace(share=share) if share else None)
        said = f"decode_device=({target.device!r}, {share / SIXTEENTHS:g})" if share else "decode_device=None"
        (own if decoding.given else taken).append(said)
    when = f"measured on {entry['date'][:10]}"
    batches = f"batches of {chosen['batch_size']}"
    if not own:
        return found, f"{', '.join(taken)}, as {when} with {batches}"
    if decoding is not None:
        batches = f"{chosen.get('decode_sixteenths', 0)}/{SIXTEENTHS} of the rows on the device, {batches}"
    measured = f"num_workers={chosen['num_workers']}, prefetch={chosen['prefetch']} and {batches}"
    line = f"{', '.join(taken) or 'nothing'} is taken from what was {when} with {measured}"
    return found, f"{line}; {', '.join(own)} {'is' if len(own) == 1 else 'are'} your own"
