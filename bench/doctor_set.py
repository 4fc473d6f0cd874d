"""Runs `stoker doctor` over a set of training scripts whose faults are known, and compares what it says with the truth.

    python -m bench.doctor_set --set bench/doctor/set2 --out FILE.json --data CACHE --photos DIR
        [--only 03,07] [--cpus 0,1] [--label first] [--stoker build/stoker] [--python python3]
        [--rates FILE.json] [--advised DIR]

A set is a folder of make_data.py and of NN_name/ with train.py, well.py (the same without the fault), for scripts with
two causes main_only.py (the same without the main one), and truth.json. For every script: the steady rates of all of
them without the doctor, twice and in turn; the doctor's report on train.py, and on well.py. The reports are written
beside FILE.json, in FILE-reports/.

With --rates the rates are those of an earlier result, and only the doctor runs. With --advised too, each train.py runs
beside itself with a report's first change applied, DIR/NN_name.patch. DIR/judged.json says of each whether it could be
applied as written ("A"), with an obvious completion ("B"), or not ("C"); and under "now" the same of advice that was
corrected since, with NN_name.now.patch.

Scripts are started with DATA_DIR in their environment and print lines with `samples N` and `time T`. Beside a script
that is `loaded` in truth.json, one more process uses a core of the same ones.
"""

import argparse
import ast
import contextlib
import fnmatch
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid

from bench import meter, rig

PROGRESS = re.compile(r"samples[=: ]+(\d+).*?time[=: ]+([\d.]+)")
PLACE = re.compile(r"([\w./-]+\.py):(?:[^:\"\s]+:)?(\d+)")
MARK = "DOCTOR_SET_RUN"
FALSE_ALARM = 1.15  # a data-bound verdict on a healthy script, with a gain above this
WITHIN = 0.25
WARM_UP = 5.0  # seconds, from the first line of a script on


class Run:
    """A command in a session of its own; lines are read as they come."""

    def __init__(self, command, folder, environment):
        self.mark = uuid.uuid4().hex
        self.lines = queue.Queue()
        self.tail = []
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={**environment, MARK: self.mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.tail = [*self.tail[-19:], line.rstrip("\n")]
            self.lines.put(line)
        self.lines.put(None)

    def end(self):
        """Ends the command, and what it started in other sessions (torchrun's ranks), which bears its mark."""
        end(self.process, self.mark)


def marked(mark):
    """The processes whose environment bears a mark of this harness."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with contextlib.suppress(OSError):
                if wanted in pathlib.Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                    found.append(int(entry))
    return found


def end(process, mark):
    """Ends a process that this harness started: politely, then what is left of it."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(8)
    for _ in range(3):
        left = marked(mark)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            break
        time.sleep(0.2)
    process.wait()


def steady_rate(command, folder, environment, seconds, limit=150.0):
    """Samples a second after the warm-up. Returns (rate or None, last lines of the script)."""
    run = Run(command, folder, environment)
    points = []
    deadline = time.monotonic() + limit
    try:
        while time.monotonic() < deadline:
            try:
                line = run.lines.get(timeout=1)
            except queue.Empty:
                continue
            if line is None:
                break
            found = PROGRESS.search(line)
            if found:
                points.append((float(found[2]), int(found[1])))
                if points[-1][0] - points[0][0] >= WARM_UP + seconds:
                    break
    finally:
        run.end()
    steady = [p for p in points if p[0] - points[0][0] >= WARM_UP]
    if len(steady) < 2:
        return None, run.tail
    return (steady[-1][1] - steady[0][1]) / (steady[-1][0] - steady[0][0]), run.tail


def ask_doctor(stoker, command, folder, environment, base, limit=180.0):
    """Runs the doctor until its verdict, saves the report as base.json and base.txt; returns it with the seconds."""
    mark = uuid.uuid4().hex
    begin = time.monotonic()
    with open(f"{base}.json", "w") as out, open(f"{base}.err", "w") as err:
        process = subprocess.Popen(
            [*stoker, "doctor", "--json", "--stop", "--", *command],
            cwd=folder,
            env={**environment, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(limit)
        took = time.monotonic() - begin
        end(process, mark)
    try:
        report = json.loads(pathlib.Path(f"{base}.json").read_text())
    except ValueError:
        return None, took
    text = subprocess.run(
        [*stoker, "doctor", "--from", f"{base}.json"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    pathlib.Path(f"{base}.txt").write_text(text.stdout + text.stderr)
    return report, took


def places_in(part):
    """The file:line that a part of a report names, in order, each once."""
    text = part if isinstance(part, str) else json.dumps(part)
    return list(dict.fromkeys(f"{name}:{number}" for name, number in PLACE.findall(text)))


def lines_from(source, line):
    """The lines of what begins at a line: a call over several lines, say; of a compound statement only its head."""
    lines = {line}
    for node in ast.walk(ast.parse(source)):
        if getattr(node, "lineno", None) == line:
            last = node.end_lineno
            if isinstance(getattr(node, "body", None), list):
                last = max(line, node.body[0].lineno - 1)
            lines |= set(range(line, last + 1))
    return lines


def accepted_places(folder, truth):
    """What truth.json accepts, as (file, line) pairs; a text that is not in its file is an error of the set."""
    accepted = set()
    for name, text in truth["lines"]:
        source = (folder / name).read_text()
        numbers = [n for n, line in enumerate(source.splitlines(), 1) if text in line]
        if not numbers:
            raise ValueError(f"{folder.name}: {name} has no line with {text!r}")
        for number in numbers:
            accepted |= {(name, n) for n in lines_from(source, number)}
    return accepted


def is_accepted(place, accepted):
    name, _, number = place.rpartition(":")
    return any(
        int(number) == n and (file == name or pathlib.PurePath(file).name == pathlib.PurePath(name).name)
        for file, n in accepted
    )


def name_matches(name, patterns):
    return any(fnmatch.fnmatchcase(name.lower(), p.lower()) for p in patterns)


def read_report(report, text):
    """What a report says, in the terms of the comparison."""
    verdict = report.get("verdict") or {}
    title = re.search(r"^verdict\s+(.+?)(?: \(\S+\.py:\d+\))?$", text, re.MULTILINE)
    head = re.search(r"^verdict .*\((\S+?\.py:\d+)\)", text, re.MULTILINE)
    return {
        "verdict": title[1] if title else verdict.get("name", ""),
        "data_bound": bool(verdict.get("data_bound")),
        "sentence": verdict.get("sentence", ""),
        "headline_line": head[1] if head else verdict.get("loader"),
        "lines": list(dict.fromkeys(places_in(verdict) + places_in(report.get("findings") or []))),
        "changes": [change.get("code") for change in verdict.get("changes") or []],
        "findings": [finding.get("name") for finding in report.get("findings") or []],
        "speedup": verdict.get("speedup"),
    }


def is_near(predicted, measured):
    return abs(predicted / measured - 1) <= WITHIN


def judge(said, truth, accepted, gain):
    """Compares what was said of train.py with the truth; gain is the measured one of the main change."""
    healthy = truth["healthy"]
    predicted = said["speedup"]
    if predicted is None and not said["data_bound"]:
        predicted = 1.0
    expected = 1.0 if healthy else gain
    within = None
    if predicted is not None and expected:
        within = is_near(predicted, expected)
    return {
        "verdict_right": name_matches(said["verdict"], truth["verdicts"]),
        "finding_right": any(name_matches(name, truth["verdicts"]) for name in said["findings"]),
        "line_right": any(is_accepted(place, accepted) for place in said["lines"]),
        "headline_right": bool(said["headline_line"]) and is_accepted(said["headline_line"], accepted),
        "predicted": predicted,
        "expected": expected,
        "within_25": within,
    }


class Set:
    """A set of scripts, and how to run them."""

    def __init__(self, args):
        self.args = args
        self.environment = {
            **os.environ,
            "DATA_DIR": str(args.data.resolve()),
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.reports = args.out.resolve().with_name(args.out.stem + "-reports")
        self.reports.mkdir(parents=True, exist_ok=True)
        before = json.loads(args.rates.read_text())["scripts"] if args.rates else []
        self.earlier = {script["script"]: script["rates"] for script in before}

    def advice(self, script, judged):
        """The rate with a report's first change, beside what the report promised; now, if the advice was corrected."""
        judged = dict(judged)
        now = judged.pop("now", None)
        result = self.applied(script, judged, ".patch")
        return result | ({"now": self.applied(script, now, ".now.patch")} if now else {})

    def applied(self, script, judged, ending):
        if judged["grade"] == "C":
            return {**judged, "measured": None, "within_25": False}
        truth, rates = script["truth"], []
        patch = (self.args.advised / (script["script"] + ending)).resolve()
        with tempfile.TemporaryDirectory() as top, self.load(truth):
            before = (self.args.set / script["script"]).resolve()
            after = pathlib.Path(shutil.copytree(before, pathlib.Path(top, script["script"])))
            if patch.exists():  # nothing is changed in a script for which nothing was advised
                subprocess.run(["git", "apply", str(patch)], cwd=after, check=True)
            for folder in (before, after):
                rate, tail = steady_rate(
                    self.command(truth, "train.py"), folder, self.environment, truth.get("seconds", self.args.seconds)
                )
                if rate is None:
                    print(script["script"], "no rate; its last lines:", *tail, sep="\n  ", file=sys.stderr)
                    return {**judged, "measured": None, "within_25": False}
                rates.append(rate)
        measured = rates[1] / rates[0]
        promised = script["train"]["speedup"] or 1.0
        return {**judged, "measured": round(measured, 3), "within_25": is_near(promised, measured)}

    def make_data(self):
        command = [*self.args.python, str((self.args.set / "make_data.py").resolve())]
        subprocess.run([*command, str(self.args.data.resolve()), str(self.args.photos.resolve())], check=True)

    def command(self, truth, name):
        return [*self.args.python, *truth.get("launch", []), name]

    def rates(self, folder, truth, names):
        if folder.name in self.earlier:
            return self.earlier[folder.name]
        rates = {name: [] for name in names}
        for _ in range(self.args.rounds):
            for name in names:
                rate, tail = steady_rate(
                    self.command(truth, name), folder, self.environment, truth.get("seconds", self.args.seconds)
                )
                if rate is None:
                    print(f"{folder.name}/{name}: no rate; its last lines:", *tail, sep="\n  ", file=sys.stderr)
                else:
                    rates[name].append(round(rate, 2))
        return rates

    def diagnose(self, folder, truth, name):
        base = self.reports / f"{folder.name}.{name.removesuffix('.py')}"
        report, took = ask_doctor(self.args.stoker, self.command(truth, name), folder, self.environment, str(base))
        if report is None:
            said = {"verdict": "", "data_bound": False, "sentence": "no report", "headline_line": None, "lines": []}
            said |= {"changes": [], "findings": [], "speedup": None}
        else:
            said = read_report(report, pathlib.Path(f"{base}.txt").read_text())
        return {**said, "seconds": round(took, 1)}

    def measure(self, folder):
        """One script: rates, reports, comparison."""
        truth = json.loads((folder / "truth.json").read_text())
        accepted = accepted_places(folder, truth)
        names = [n for n in ("train.py", "main_only.py", "well.py") if (folder / n).exists()]
        with self.load(truth):
            rates = self.rates(folder, truth, names)
            said = self.diagnose(folder, truth, "train.py")
            said_well = self.diagnose(folder, truth, "well.py")
        means = {name: statistics.mean(values) if values else None for name, values in rates.items()}
        gains = {n: means[n] / means["train.py"] if means[n] and means["train.py"] else None for n in names[1:]}
        gain = gains.get("main_only.py", gains["well.py"])
        speedup = said_well["speedup"] or 1.0
        return {
            "script": folder.name,
            "truth": truth,
            "rates": rates,
            "gain": gain,
            "gain_of_all": gains["well.py"],
            "train": said,
            **judge(said, truth, accepted, gain),
            "well": said_well,
            "false_alarm": said_well["data_bound"] and speedup > FALSE_ALARM,
        }

    @contextlib.contextmanager
    def load(self, truth):
        if not truth["loaded"]:
            yield
            return
        process = subprocess.Popen([sys.executable, "-c", "while True: pass"], stdin=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.kill()
            process.wait()


def summary(results):
    faulty = [r for r in results if not r["truth"]["healthy"]]
    return {
        "scripts": len(results),
        "verdict_right": sum(r["verdict_right"] for r in results),
        "line_right": sum(r["line_right"] for r in results),
        "headline_right": sum(r["headline_right"] for r in results),
        "within_25": sum(bool(r["within_25"]) for r in results),
        "predictions": sum(r["predicted"] is not None for r in results),
        "faulty": len(faulty),
        "false_alarms": sum(r["false_alarm"] for r in results),
    }


def absolute(command):
    """A command whose program is a path, so that it runs in any folder."""
    if os.sep in command[0]:
        return [os.path.abspath(command[0]), *command[1:]]
    return command


def number(value):
    return "-" if value is None else f"{value:.2f}"


def print_row(r):
    marks = "".join(
        "." if not ok else letter
        for letter, ok in zip("VLP", (r["verdict_right"], r["line_right"], r["within_25"]), strict=True)
    )
    alarm = " ALARM" if r["false_alarm"] else ""
    print(
        f"{r['script']:22} {marks} {r['train']['verdict'][:34]:34} {r['train']['headline_line'] or '-':22}"
        f" {number(r['predicted']):>6} {number(r['gain']):>6}  {r['well']['verdict'][:26]}"
        f" {number(r['well']['speedup'])}{alarm}",
        flush=True,
    )


def finish(path, document, shares):
    """Aims are those of issue 14's targets, by the number of scripts."""
    found, n = document["summary"], document["summary"]["scripts"]
    gates = [
        rig.Gate(f"verdicts right, of {n}", found["verdict_right"], 0.95 * n, "high"),
        rig.Gate(f"lines right, of {n}", found["line_right"], 0.85 * n, "high"),
        rig.Gate(f"gains within 25 %, of {n}", found["within_25"], 0.75 * n, "high"),
        rig.Gate("alarms on healthy scripts", found["false_alarms"], 0, "low"),
    ]
    if "applicable" in found:
        gates.append(rig.Gate(f"advice applicable, of {n}", found["applicable"], 0.9 * n, "high"))
        gates.append(
            rig.Gate(f"advice that gains what it promises, of {n}", found["advice_within_25"], 0.75 * n, "high")
        )
    missing = [s["script"] for s in document["scripts"] if not all(s["rates"].values())]
    doubts = [f"no rate of {name}" for name in missing]
    figures = {name: float(value) for name, value in found.items()}
    return rig.finish(path, document, gates, doubts, figures, [sum(shares)])


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="cache folder; made if it is not there")
    parser.add_argument("--photos", type=pathlib.Path, default=pathlib.Path("testdata/photos"))
    parser.add_argument("--only", default="", help="numbers of scripts, with commas between them")
    parser.add_argument("--cpus", default="", help="processors for everything, such as 0,1")
    parser.add_argument("--label", default="")
    parser.add_argument("--stoker", default="stoker")
    parser.add_argument("--python", type=str.split, default=[sys.executable])
    parser.add_argument("--seconds", type=float, default=15.0, help="of a rate, unless truth.json says how many")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rates", type=pathlib.Path, help="an earlier result, whose rates are taken")
    parser.add_argument("--advised", type=pathlib.Path, help="scripts with the advice applied, and judged.json")
    args = parser.parse_args(argv)
    if args.advised and not args.rates:
        parser.error("--advised needs --rates, the result whose advice was applied")
    if args.cpus:
        os.sched_setaffinity(0, {int(c) for c in args.cpus.split(",")})
    only = {int(n) for n in args.only.split(",") if n}
    folders = sorted(f for f in args.set.resolve().glob("[0-9][0-9]_*") if not only or int(f.name[:2]) in only)
    args.stoker = absolute(args.stoker.split())
    args.python = absolute(args.python)
    rig.may_write(args.out)
    meter.become_subreaper()
    cpus = sorted(os.sched_getaffinity(0))
    machine = rig.machine(cpus)
    others = meter.Disturbance(cpus, lambda: meter.descendants(os.getpid()))
    scripts = Set(args)
    if args.advised:
        return measure_advice(args, only, scripts, machine, others)
    scripts.make_data()
    results = []
    print(
        f"{'script':22} V=verdict L=line P=prediction; verdict, line, predicted and measured gain; verdict on well.py"
    )
    for folder in folders:
        results.append(scripts.measure(folder))
        print_row(results[-1])
        record = {"schema": 1, "set": args.set.name, "label": args.label, "machine": machine}
        record |= {"summary": summary(results), "scripts": results}
        args.out.with_suffix(".part").write_text(json.dumps(record, indent=1) + "\n")
    return finish(args.out, record, others.shares())


def measure_advice(args, only, scripts, machine, others):
    """Adds to an earlier result (--rates) what its advice gained."""
    document = json.loads(args.rates.read_text())
    judged = json.loads((args.advised / "judged.json").read_text())
    for script in document["scripts"]:
        if only and int(script["script"][:2]) not in only:
            continue
        script["advice"] = scripts.advice(script, judged[script["script"]])
        print(script["script"], script["train"]["speedup"], json.dumps(script["advice"]), flush=True)
        args.out.with_suffix(".part").write_text(json.dumps(document, indent=1) + "\n")
    advice = [script["advice"] for script in document["scripts"] if "advice" in script]
    document["summary"]["applicable"] = sum(one["grade"] in "AB" for one in advice)
    document["summary"]["advice_within_25"] = sum(one["within_25"] for one in advice)
    now = [one.get("now", one) for one in advice]
    document["summary"]["applicable_now"] = sum(one["grade"] in "AB" for one in now)
    document["summary"]["advice_within_25_now"] = sum(one["within_25"] for one in now)
    document["advice_machine"] = machine
    return finish(args.out, document, others.shares())


if __name__ == "__main__":
    raise SystemExit(main())
