"""Holds the figures of the docs to bench/results: python -m bench.figures [--write].

A figure in README.md, ROADMAP.md, SECURITY.md, docs/ or bench/README.md is one of four things, and anything else is an
error:

  linked    [1.93](bench/results/jpeg.json#region-all-stoker-avx2-x): the text is the value of that name in the
            "figures" of that result, rounded to as many decimals as the text has. --write puts today's values in.
  table     the lines between <!-- table: NAME --> and <!-- /table --> are what TABLES[NAME] makes of the results.
            --write makes them anew.
  recorded  measured once, for a decision or an example, and not part of a benchmark that is retaken:
            bench/results/recorded.json lists all of a page in their order, with commit, date and machine.
  stated    a limit, a setting or a definition, not a measurement: bench/stated.json lists them.

Code blocks are examples of output, and are not looked at. A result must name its commit, its date, its machine and what
others took of the processors; a result of a tree with changes, or with a doubt, is an error.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import covers, gpu, link, remote, rig
from bench.augment.operations import OPERATIONS, REQUIRED

# A number with a unit or a word of a measurement: 1.93 times, 2.1x, 4 %, 30 to 40 us, 1,616 images a second. Sizes and
# counts are not looked at: nearly all are limits. "256 x 256" is a size too.
UNIT = (
    r"(?:times\b|x\b(?! ?\d)|%|[mun]s\b|s\b|seconds?\b|minutes?\b"
    r"|(?:images|pictures|samples|tokens)(?:/| (?:a|per) )(?:CPU-)?s(?:econd)?\b)"
)
FIGURE = re.compile(rf"(?<![\w.\-/#])[+\-]?\d[\d,.]*(?: (?:to|and|or|of) \d[\d,.]*)*[ \u00a0]?{UNIT}")
LINK = re.compile(r"\[([+\-]?[\d,]+(?:\.\d+)?)\]\(([^)#\s]*bench/results/[\w.\-]+\.json|[\w.\-]+\.json)#([^)\s]+)\)")
TABLE = re.compile(r"(<!-- table: ([\w-]+) -->\n)(.*?)(<!-- /table -->)", re.DOTALL)
FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.DOTALL | re.MULTILINE)
RECORDED = "recorded.json"


def pages(root: Path) -> Iterator[Path]:
    for name in ("README.md", "ROADMAP.md", "SECURITY.md", "bench/README.md"):
        if (root / name).exists():
            yield root / name
    yield from sorted((root / "docs").rglob("*.md"))


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def parts(result: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The measurements of a result: itself, or one a question."""
    if "machine" in result:
        yield "", result
    else:
        yield from ((name, part) for name, part in result.items() if isinstance(part, dict) and "machine" in part)


def figures(result: dict[str, Any]) -> dict[str, float]:
    """The figures of a result by the names that links have for them."""
    found: dict[str, float] = {}
    for question, part in parts(result):
        for name, value in part.get("figures", {}).items():
            key = slug(f"{question} {name}")
            if key in found:
                raise SystemExit(f"two figures are called {key}")
            found[key] = value
    return found


class Results:
    """The files of bench/results, each read once."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "bench" / "results"
        self._read: dict[str, dict[str, Any]] = {}

    def __getitem__(self, name: str) -> dict[str, Any]:
        if name not in self._read:
            self._read[name] = json.loads((self.folder / name).read_text())
        return self._read[name]

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*.json") if path.name != RECORDED)

    def listed(self, page: str) -> list[str]:
        """The figures of a page that are not linked, and why they need not be."""
        recorded = self[RECORDED]["pages"] if (self.folder / RECORDED).exists() else {}
        stated = self.root / "bench" / "stated.json"
        of_page = json.loads(stated.read_text()).get(page, []) if stated.exists() else []
        return [*recorded.get(page, {}).get("figures", []), *of_page]


def shown(value: float, like: str) -> str:
    """value with as many decimals as like, and commas from a thousand on."""
    decimals = len(like.partition(".")[2])
    sign = "+" if like.startswith("+") and value > 0 else ""
    return f"{sign}{value:,.{decimals}f}"


def unsound(results: Results) -> Iterator[str]:
    """What a result lacks that every result must have."""
    for name in results.names():
        found = list(parts(results[name]))
        if not found:
            yield f"bench/results/{name}: does not say on which machine it was measured"
        for question, part in found:
            where = f"bench/results/{name}" + (f", {question}" if question else "")
            machine = part["machine"]
            missing = [key for key in ("cpu", "commit", "date") if not machine.get(key)]
            missing += [key for key in ("disturbed", "gates", "doubts", "figures") if key not in part]
            if missing:
                yield f"{where}: lacks {', '.join(missing)}"
            if machine.get("changed_files"):
                yield f"{where}: measured in a tree with {machine['changed_files']} changed files"
            yield from (f"{where}: {doubt}" for doubt in part.get("doubts", ()))


def incomplete(results: Results) -> Iterator[str]:
    """What augment.json leaves out: it has a figure or a reason for each operation of each peer."""
    if "augment.json" not in results.names():
        return
    part = results["augment.json"].get("operations", {})
    gates = {gate["what"] for gate in part.get("gates", ())}
    for name, operation in OPERATIONS.items():
        for peer, limits in {"stoker": (None, None), **REQUIRED}.items():
            measured = f"{name} {peer}, us" in part.get("figures", {})
            if measured == bool(part.get("missing", {}).get(peer, {}).get(name)):
                yield f"bench/results/augment.json: not one of a figure and a reason for {name} by {peer}"
            limit = limits[0 if operation.heavy else 1]
            if measured and limit is not None and f"{name}, times as fast as {peer}" not in gates:
                yield f"bench/results/augment.json: no figure to reach for {name} over {peer}"


def check_links(text: str, page: str, results: Results, write: bool) -> tuple[str, list[str]]:
    problems: list[str] = []

    def one(link: re.Match[str]) -> str:
        said, path, key = link.groups()
        target = (results.root / page).parent / path
        name = Path(path).name
        if target.resolve().parent != results.folder.resolve() or not target.exists():
            problems.append(f"{page}: {path}: no such result")
            return link[0]
        value = figures(results[name]).get(key)
        if value is None:
            problems.append(f"{page}: {name} has no figure {key}")
            return link[0]
        now = shown(value, said)
        if now == said:
            return link[0]
        if not write:
            problems.append(f"{page}: says {said}, but {name} has {now} for {key}")
        return f"[{now}]({path}#{key})"

    return LINK.sub(one, text), problems


def check_tables(text: str, page: str, results: Results, write: bool) -> tuple[str, list[str]]:
    problems: list[str] = []

    def one(table: re.Match[str]) -> str:
        begin, name, said, end = table.groups()
        now = TABLES[name](results)
        if now != said and not write:
            problems.append(f"{page}: the table {name} is not what bench/results gives")
        return begin + now + end

    return TABLE.sub(one, text), problems


def loose(text: str) -> list[str]:
    """The figures of a page that are not linked and not in a table, in their order."""
    for pattern in (FENCE, TABLE, LINK):
        text = pattern.sub(" ", text)
    text = re.sub(r"`[^`\n]*`", " ", text)  # code
    return [" ".join(found.split()) for found in FIGURE.findall(" ".join(text.split()))]


def check_loose(text: str, page: str, known: list[str]) -> list[str]:
    found = loose(text)
    problems = []
    for figure in dict.fromkeys([*found, *known]):
        if found.count(figure) > known.count(figure):
            problems.append(f"{page}: {figure!r} is linked to no result; link it, or list it (see bench/figures.py)")
        if found.count(figure) < known.count(figure):
            problems.append(f"{page}: no longer says {figure!r}, which bench/stated.json or {RECORDED} lists")
    return problems


def check(root: Path, write: bool = False) -> list[str]:
    results = Results(root)
    problems = [*unsound(results), *incomplete(results)]
    for path in pages(root):
        page = str(path.relative_to(root))
        before = path.read_text()
        text, bad = check_links(before, page, results, write)
        problems += bad
        text, bad = check_tables(text, page, results, write)
        problems += [*bad, *check_loose(text, page, results.listed(page))]
        if write and text != before:
            path.write_text(text)
            print(f"{page}: written anew")
    return problems


LABELS = {
    "stoker-second": "stoker, second epoch",
    "stoker-known": "stoker, all entry points known",
    "stoker-index": "stoker, packed with `--jpeg index`",
    "torch-tuned": "torch, `decode_jpeg` + v2",
    "torch-pil": "torch + PIL",
    "dali": "DALI, CPU",
    "tf.data": "tf.data, `decode_and_crop_jpeg`",
    "kernel": "*the bound: stoker's kernel alone*",
}


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (head, head, *rows)]
    lines[1] = "|---" * len(head) + "|"
    return "".join(re.sub(r"\|  (?=\|)", "| ", line) + "\n" for line in lines)


def compare_table(results: Results) -> str:
    """README's table of loaders: each row of compare.json, the bound among them."""
    document = results["compare.json"]
    value = document["figures"]
    rows = []
    for row in document["rows"]:
        if not row["per_cpu"]:
            continue
        name, over = f"{row['output']} {row['name']}", f"{row['output']} over {row['name']}"
        ours = row["peer"].startswith("stoker")
        label = LABELS.get(row["peer"], row["peer"])
        if "workers" in row["name"]:
            label += f", {row['workers']} worker" + ("s" if row["workers"] > 1 else "")
        rows.append(
            [
                f"**{label}**" if ours else label,
                row["about"]["resampling"].removeprefix("bilinear").strip(" ,"),
                row["output"],
                f"{value[f'{name}, per CPU-second']:,.0f}",
                f"{value[f'{name}, per second']:,.0f}",
                f"{value[f'{name}, first batch s']:.2f}",
                f"{value[f'{name}, PSS MiB']:,.0f}",
                *(("", "") if ours else (f"{value[f'{over}, CPU']:.2f}x", f"{value[f'{over}, wall']:.2f}x")),
            ]
        )
    head = ("loader", "resampling", "output", "images/CPU-s", "images/s", "first batch s", "PSS MiB")
    return markdown((*head, "stoker over it, CPU", "wall"), rows)


def tokens_table(results: Results) -> str:
    value = results["tokens.json"]["figures"]
    return markdown(
        ("", "CPU a batch", "where the batch is read, too", "stoker over it"),
        (
            [
                f"**{name}**" if name == "stoker" else name,
                f"{value[f'{name}, us']:,.0f} us",
                f"{value[f'{name}, us read']:,.0f} us",
                "" if name == "stoker" else f"{value[f'over {name}']:.2f}x",
            ]
            for name in results["tokens.json"]["runs"]
        ),
    )


def packing_table(results: Results) -> str:
    value = results["guides.json"]["figures"]
    rows = {
        "index": "`--jpeg index`",
        "256": "`--resize 256 --quality 90`",
        "256 index": "`--resize 256 --quality 90 --jpeg index`",
        "512": "`--resize 512 --quality 90`, of the few that are larger",
        "decoded 256": "`--decode --resize 256 --crop 256`",
    }
    return markdown(
        ("", "bytes", "crop, before", "packed", "times as fast"),
        (
            [
                said,
                f"{value[f'packing {name}, bytes %']:.0f} %",
                f"{value[f'packing {name}, before us']:,.0f} us",
                f"{value[f'packing {name}, packed us']:,.0f} us",
                f"{value[f'packing {name}, x']:.1f}",
            ]
            for name, said in rows.items()
        ),
    )


def packed_loaders_table(results: Results) -> str:
    """What loaders make of their own packings of the same pictures."""
    reads = {
        "stoker": ("**stoker**", "the untouched files"),
        "stoker-index": ("**stoker**", "packed with `--jpeg index`"),
        "tf.data": ("tf.data", "the untouched files"),
        "streaming": ("MosaicML Streaming, `decode_jpeg` and v2", "its shards"),
        "webdataset": ("WebDataset, `decode_jpeg` and v2", "its shards"),
        "stoker-512": ("**stoker**", "packed with `--resize 512 --quality 90`"),
        "ffcv-512": ("FFCV", "its file, 512 pixels, JPEG of quality 90"),
        "stoker-decoded256": ("**stoker**", "packed with `--decode --resize 256 --crop 256 --output npy`"),
        "ffcv-raw256": ("FFCV", "its file, at most 256 pixels on the longer side, raw"),
    }
    best: dict[str, float] = {}
    for row in results["formats.json"]["pictures"]["runs"]["rows"]:
        if row["per_cpu"]:
            best[row["peer"]] = max(best.get(row["peer"], 0.0), rig.middle(row["per_cpu"]))
    return markdown(
        ("", "reads", "images/CPU-s"), ([*reads[peer], f"{best[peer]:,.0f}"] for peer in reads if peer in best)
    )


def caching_table(results: Results) -> str:
    value = results["guides.json"]["figures"]
    rows = {
        "resize-crop": "`Resize(256)`, `RandomCrop(224)`, flip",
        "rrc": "`RandomResizedCrop(224)`, flip",
        "resize-rrc": "`Resize(256)`, `RandomResizedCrop(224)`, flip",
    }
    return markdown(
        ("transforms", "no cache", "first epoch", "later epochs", "memory an image"),
        (
            [
                said,
                f"{value[f'cache {name}, no cache ms']:.2f} ms",
                f"{value[f'cache {name}, cache ms, first epoch']:.1f} ms",
                f"{value[f'cache {name}, cache ms, later epoch']:.2f} ms",
                f"{value[f'cache {name}, kept KB an image']:.0f} KB",
            ]
            for name, said in rows.items()
        ),
    )


def chunks_table(results: Results) -> str:
    value = results["guides.json"]["figures"]
    rows = {
        "full-all": ("full", "64 MiB, which holds all of it"),
        "full-third": ("full", "8 MiB, which holds a third"),
        "block": ('`shuffle="block"`, `block=256, window=256, streams=2`', "8 MiB"),
        "contiguous": ("full, the same data without chunks", ""),
    }
    return markdown(
        ("order", "`unpacked=`", "ms"),
        ([*said, f"{value[f'chunks {name}, ms']:,.0f}"] for name, said in rows.items()),
    )


def augment_table(results: Results) -> str:
    """What each operation adds to a picture. "-": the peer does not have it; "missing": stoker does not."""
    value = results["augment.json"]["operations"]["figures"]
    names = dict.fromkeys(row["operation"] for row in results["augment.json"]["operations"]["rows"])
    peers = {"torchvision": "torchvision", "albumentations": "Albumentations", "dali": "DALI, CPU", "kornia": "Kornia"}

    def cell(name: str, peer: str) -> str:
        us, over = value.get(f"{name} {peer}, us"), value.get(f"{name} over {peer}")
        if us is None:
            return "-"
        return f"{us:,.0f} us" + ("" if over is None else f", {over:.1f}x")

    def own(name: str) -> str:
        us = value.get(f"{name} stoker, us")
        return "missing" if us is None else "below 1 us" if us < 1 else f"{us:,.0f} us"

    return markdown(
        ("operation", "**stoker**", *(f"{said}; times stoker's" for said in peers.values())),
        ([f"`{name}`", own(name), *(cell(name, peer) for peer in peers)] for name in names),
    )


def augment_loaders_table(results: Results) -> str:
    """Whole loaders, by recipe; a row's name has the number of workers that was its best."""
    part = results["augment.json"]["loaders"]
    value = part["figures"]
    peers = {"torch-tuned": "torch, `decode_jpeg` and v2", "torch-pil": "torch and PIL", "dali": "DALI, CPU"}

    def row(one: dict[str, Any]) -> list[str]:
        name = f"{one['output']} {one['name']}"
        over = value.get(f"{one['output']} over {one['name']}, CPU")
        said = f"**{one['peer']}**" if over is None else peers[one["peer"]]
        rates = [f"{value[f'{name}, {unit}']:,.0f}" for unit in ("per CPU-second", "per second")]
        return [one["output"], said, *rates, "" if over is None else f"{over:.1f}x"]

    names = ("recipe", "loader", "images per CPU-second", "images per second", "CPU, stoker over it")
    return markdown(names, (row(one) for one in part["rows"] if one["per_cpu"]))


def recipes_table(results: Results) -> str:
    """Whole training recipes: how far the loss curves are apart, and the rates of both loaders."""
    part = results["recipes.json"]
    value = part["figures"]
    where = {run["recipe"]: run["where"] for run in part["runs"] if run["pipeline"] == "stoker"}

    def rates(name: str, unit: str) -> str:
        ours, theirs = (value[f"{name} {one}, {unit}"] for one in ("stoker", "torch"))
        return f"{ours:,.0f} and {theirs:,.0f}, {value[f'{name} over torch, {unit}']:.2f}x"

    def row(name: str) -> list[str]:
        apart = [f"{value[f'{of}, distance over spread']:.2f}" for of in (name, f"{name} control")]
        return [name, where[name], *apart, rates(name, "images/s"), rates(name, "images/CPU-s")]

    return markdown(
        (
            *("recipe", "stoker's samples by", "curves apart, in spreads of seeds", "the control"),
            *("images/s of the loop, stoker and torch", "images per CPU-second of loading, stoker and torch"),
        ),
        map(row, where),
    )


def remote_table(results: Results) -> str:
    """Loaders over the slow link. A peer that a short trial ruled out, or that did not run, has its reason."""
    rows = [
        remote.Row(**{key: value for key, value in row.items() if key != "name"})
        for row in results["remote.json"]["tar"]["answers"]["tar"]
    ]
    ours, lines = rows[0], []
    for row in rows:
        runs = row.runs or ([row.trial] if row.trial else [])
        label = f"**{row.peer}**" if row is ours else f"{row.peer}, {row.workers} worker" + "s" * (row.workers > 1)
        if not runs:
            lines.append([label, "does not run: " + row.problem.splitlines()[-1], *[""] * 6])
            continue
        when = "later_" if "later_rate" in runs[0] else "first_"
        keys = (when + "rate", when + "cpu", "first_batch")
        rate, cpu, first = (rig.middle(run[key] for run in runs) for key in keys)
        ratios = ["", ""]
        if row is not ours and row.runs:
            ratios = [f"{remote.common(ours, row, 'rate'):.2f}x", f"{1 / remote.common(ours, row, 'cpu'):.2f}x"]
        measured = "later epochs" if when == "later_" else "first epoch"
        shown = [f"{rate / 1e6:.0f}", f"{rate / link.LINK_BYTES:.2f}", f"{cpu:.2f}", f"{first:.2f}"]
        lines.append([label, measured + (", one short run" if row.slower else ""), *shown, *ratios])
    head = ("loader", "measured", "MB/s", "of the link", "CPU-s/GB", "first batch s")
    return markdown((*head, "stoker over it, wall", "CPU"), lines)


def gpu_table(results: Results) -> str:
    """The tests and figures of a GPU: when each last ran, and what has changed since."""
    lines = covers.lines(results.root, results["gpu-tests.json"], results["gpu.json"], gpu.FIGURES)
    return markdown(("what", "result", "on", "sources"), lines)


def gpu_short_table(results: Results) -> str:
    """The same in a few lines."""
    lines = covers.lines(results.root, results["gpu-tests.json"], results["gpu.json"], gpu.FIGURES)
    found: dict[tuple[str, ...], list[str]] = {}
    for what, result, *rest in lines:
        kind = "figures" if what in gpu.FIGURES else "tests"
        outcome = result.partition(" (")[0] if kind == "tests" or result == covers.NEVER else "measured"
        found.setdefault((kind, outcome, *rest), []).append(what)
    return markdown(
        ("", "result", "on", "sources"),
        [[f"{len(n)} {k if len(n) > 1 else k[:-1]}", *rest] for (k, *rest), n in found.items()],
    )


TABLES: dict[str, Callable[[Results], str]] = {
    "compare": compare_table,
    "tokens": tokens_table,
    "packing": packing_table,
    "packed-loaders": packed_loaders_table,
    "caching": caching_table,
    "chunks": chunks_table,
    "augment": augment_table,
    "augment-loaders": augment_loaders_table,
    "recipes": recipes_table,
    "remote": remote_table,
    "gpu": gpu_table,
    "gpu-short": gpu_short_table,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.figures", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put today's results into the docs")
    parser.add_argument("--root", type=Path, default=rig.ROOT, help="the checkout (default: this one)")
    args = parser.parse_args()
    problems = check(args.root.resolve(), args.write)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
