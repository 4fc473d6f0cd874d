"""The doctor's hook at the edges of scripts: children, other hooks, every way to end."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from hooked import HOOK, LONG, Scripts, read


def test_scripts_without_torch_and_their_children(scripts: Scripts) -> None:
    run = scripts.run("""
        import os, subprocess, sys
        if os.fork() == 0:
            sys.exit(0)
        os.wait()
        subprocess.run([sys.executable, "-c", "raise KeyError(1)"], stderr=subprocess.DEVNULL)
        subprocess.run([sys.executable, "-I", "-c", "pass"])
        if os.fork() == 0:
            os._exit(0)
        os.wait()
        raise SystemExit(7)
    """)
    assert (run.code, run.out, run.err) == (7, "", "")
    assert run.main()["loaders"] == []
    assert run.main()["exit"] == "ok"
    assert run.main()["argv"][0].endswith("train.py")
    children = [x for x in run.lines if x["role"] == "child"]
    assert sorted(x["exit"] for x in children) == ["exception KeyError", "ok"]
    assert all(x["ppid"] == run.main()["pid"] for x in children)


def test_nothing_happens_without_a_folder(scripts: Scripts, tmp_path: Path) -> None:
    text = "import sys; print([x for x in sys.modules if 'stoker' in x], sys.path)"
    plain = scripts.end(scripts.start(text, watch=False))
    (tmp_path / "file").touch()
    shut = tmp_path / "shut"
    shut.mkdir(mode=0o500)
    for folder in ("", str(tmp_path / "missing"), str(tmp_path / "file"), *([str(shut)] if os.geteuid() else [])):
        run = scripts.end(scripts.start(text, STOKER_DOCTOR_DIR=folder))
        assert (run.code, run.out, run.err) == (0, plain.out, ""), folder
    assert list(shut.iterdir()) == []


def test_another_sitecustomize_runs(scripts: Scripts, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys; sys.mine = __file__\n")
    path = os.pathsep.join([str(HOOK), str(own)])
    text = "import sys, sitecustomize; print(sys.mine == sitecustomize.__file__, sitecustomize.__file__, sys.path[1])"
    run = scripts.run(text, PYTHONPATH=path)
    assert (run.out, run.err) == (f"True {own}/sitecustomize.py {own}\n", "")
    assert run.main()["exit"] == "ok"

    (own / "sitecustomize.py").write_text("raise ValueError('mine')\n")
    broken = scripts.run("print(1)", PYTHONPATH=path)
    alone = scripts.end(scripts.start("print(1)", watch=False, PYTHONPATH=str(own)))
    assert (broken.out, broken.err) == (alone.out, alone.err)
    assert "ValueError: mine" in alone.err


def test_a_module_of_the_scripts_own_is_not_shadowed(scripts: Scripts) -> None:
    for name in ("json", "threading", "functools", "weakref", "types", "random"):
        scripts.write(f"{name}.py", "own = True\n")
    plain, watched = (
        scripts.end(scripts.start("import json, random; print(json.own, random.own)", watch=watch))
        for watch in (False, True)
    )
    assert (watched.out, watched.err, watched.code) == (plain.out, plain.err, plain.code) == ("True True\n", "", 0)


ENDS = """
    import gc, os, signal, sys, time, torch
    from torch.utils.data import DataLoader, Dataset

    class Numbers(Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, i):
            if i == 8 and how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if i == 8 and how == "stuck":
                time.sleep(1000)
            return i

    def train():
        for i, batch in enumerate(DataLoader(Numbers(), 4, num_workers=how in ("killed", "stuck"))):
            if i == 1 and how == "crash":
                time.sleep(0.8)
                os.kill(os.getpid(), signal.SIGKILL)
            if i == 1 and how == "leave":
                os._exit(3)
            if i == 1 and how == "exit":
                sys.exit(5)
            if i == 1 and how == "error":
                raise LookupError("mine")

    gc.freeze()  # what torch has imported is not copied into each child
    children = {}
    for how in ("killed", "crash", "leave", "exit", "stuck"):
        child = os.fork()
        if child == 0:
            if how == "killed":
                sys.stderr = open(os.devnull, "w")
            train()
        children[how] = child
    for how, child in children.items():
        if how == "stuck":
            print("ready", flush=True)
            sys.stdin.readline()
            os.kill(child, signal.SIGKILL)
        print(how, child, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    how = "error"
    train()
"""


def test_however_a_script_ends(scripts: Scripts) -> None:
    """Status and words are the script's own, and each last line is true of what had happened when it was written."""
    process = scripts.start(ENDS)
    out = scripts.out
    assert process.stdout is not None
    ended = {}
    for line in iter(process.stdout.readline, "ready\n"):
        how, child, status = line.split()
        ended[how] = (int(child), int(status))

    # The child that hangs is told of while it does.
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        stuck = [x for x in read(out) if x["role"] == "worker" and (x["worker"]["fetching"] or x["t"]) < x["t"] - 1]
        waits = [x for x in read(out) if x["loaders"] and stuck and x["pid"] == stuck[0]["ppid"]]
        # Where a busy machine held the first batches up, looks found them too: what hangs outnumbers them in the end.
        hangs = stuck and [at for at, _ in stuck[0]["worker"]["stacks"][:1] if at.startswith("train.py:__getitem__:")]
        if waits and hangs and stuck[0]["worker"]["looks"] > 3:
            if waits[0]["t"] - waits[0]["loaders"][0]["doing"][1] > 1 and stuck[0]["worker"]["waits"]["sleep"] > 0.5:
                break
        time.sleep(0.1)
    assert waits[0]["loaders"][0]["doing"][0] == "wait"
    assert waits[0]["loaders"][0]["batches"] == 2
    assert stuck[0]["worker"]["batches"] == 2
    assert stuck[0]["worker"]["stacks"][0][0].startswith("train.py:__getitem__:")
    assert stuck[0]["worker"]["waits"]["sleep"] > 0.5
    assert process.stdin is not None
    os.kill(stuck[0]["pid"], signal.SIGKILL)
    process.stdin.write("\n")
    run = scripts.end(process, out)

    assert [x["trouble"] for x in run.lines] == [[]] * len(run.lines)
    by_pid = {x["pid"]: x for x in run.lines}
    said = {how: by_pid[child] for how, (child, _) in ended.items()}
    assert {how: status for how, (_, status) in ended.items()} == {"killed": 1, "crash": -9, "leave": 3, "exit": 5}
    assert said["killed"]["loaders"][0]["batches"] in (1, 2)  # torch may hear of the death before the second comes
    assert [said[how]["loaders"][0]["batches"] for how in ("crash", "leave", "exit")] == [2, 2, 2]
    assert said["killed"]["exit"].startswith("exception ")
    assert [said[how]["exit"] for how in ("crash", "leave", "exit")] == [None, "ok", "ok"]
    assert {x["role"] for x in said.values()} == {"child"}
    assert run.code == 1
    assert run.main()["exit"] == "exception LookupError"
    assert run.main()["loaders"][0]["batches"] == 2
    assert run.err.splitlines()[-1] == "LookupError: mine"
    assert "stoker" not in run.err
