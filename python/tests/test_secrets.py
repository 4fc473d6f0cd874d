"""No secret anywhere: keys, tokens and signatures are planted in the environment, in files and in URLs. Then everything
that stoker writes, shows and keeps is searched, in success and in failure."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import clouds
import pytest
import stores
from conftest import TOP, make_tar
from forms import mostly

import stoker

HUSH = "HUSH"  # in every secret
PASSWORD = "HUSHpassword"


class Store(ThreadingHTTPServer):
    """Files of a folder, in ranges. Those below /signed/ need the signature that is valid now, those below /private/ a
    user and a password."""

    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), Files)
        self.root = root
        self.signature = "HUSHsignature1"
        self.asked: list[str] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that closes a connection is none of the test's business."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def signed(self, name: str) -> str:
        query = f"X-Amz-Credential=HUSHkey&X-Amz-Expires=3600&X-Amz-Signature={self.signature}"
        return f"http://{self.address}/signed/{name}?{query}"

    def private(self, name: str) -> str:
        return f"http://reader:{PASSWORD}@{self.address}/private/{name}"


class Files(BaseHTTPRequestHandler):
    server: Store
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        self.server.asked.append(self.path)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        path = self.server.root / Path(url.path).name
        if url.path.startswith("/signed/") and parse_qs(url.query).get("X-Amz-Signature") != [self.server.signature]:
            return self.answer(403)
        login = "Basic " + base64.b64encode(f"reader:{PASSWORD}".encode()).decode()
        if url.path.startswith("/private/") and self.headers.get("Authorization") != login:
            return self.answer(401)
        if url.path.count("/") == 1:  # a folder
            return self.answer(301, headers={"Location": url.path + "/"})
        if not path.is_file():
            return self.answer(404)
        body = path.read_bytes()
        headers = {"ETag": f'"{len(body)}-{path.name}"', "Accept-Ranges": "bytes"}
        if asked := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
            first, last = int(asked[1]), min(int(asked[2]), len(body) - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(body)}"
            return self.answer(206, body[first : last + 1], headers)
        return self.answer(200, body, headers)

    def answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    root = tmp_path_factory.mktemp("served")
    make_tar(root / "train-000.tar", 0, 7)
    make_tar(root / "train-001.tar", 7, 5)
    with Store(root) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


# A training script: what it prints and writes is searched. It gets its URLs through a pipe.
SCRIPT = """
import json, os, pathlib, sys
import stoker

told = json.load(sys.stdin)
out = pathlib.Path(told["out"])

def kept():
    # The command lines of everything that runs, and memory that other processes may map: pages of statistics.
    lines = memory = b""
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if not entry.name.isdigit() or os.environ["STOKER_CACHE"].encode() not in (entry / "environ").read_bytes():
                continue
            line = (entry / "cmdline").read_bytes()
            lines += line + b"\\n"
            if b"--fd" in line:
                for fd in (entry / "fd").iterdir():
                    if "memfd:" in os.readlink(fd):
                        memory += fd.read_bytes()
        except OSError:
            continue
    with open(out / "lines", "ab") as file:
        file.write(lines)
    with open(out / "memory", "ab") as file:
        file.write(memory)

def attempt(name, work):
    try:
        work()
    except stoker.StokerError as error:
        (out / f"{name}.error").write_text(f"{error.code}\\n{error}\\n{error!r}\\n{error.where}\\n{vars(error)}")
        print(error)

def train(urls, name, **options):
    data = stoker.WebDataset(urls).decode("rgb8").to_tuple("jpg", "cls")
    with stoker.DataLoader(data, 4, shuffle=True, seed=1, num_workers=2, output="numpy", **options) as loader:
        ids = [batch.ids.tolist() for batch in loader]
        kept()
        (out / f"{name}.json").write_text(json.dumps({
            "ids": ids, "state": loader.state_dict(), "stats": loader.stats(), "shown": [repr(loader), repr(data)],
        }, default=str))
        print(loader, data, loader.receipt() if hasattr(loader, "receipt") else "")

train(told["signed"], "signed")
train(told["private"], "private")
mixed = [stoker.WebDataset(u).decode().to_tuple("cls") for u in (told["signed"], told["private"])]
with stoker.DataLoader(stoker.Mixture(mixed), 4, output="numpy") as loader:
    (out / "mixed.json").write_text(json.dumps([batch.ids.tolist() for batch in loader]))
attempt("stats", lambda: (out / "stats.json").write_text(json.dumps(stoker.stats(told["signed"], headers=True))))
attempt("pack", lambda: (out / "packed.json").write_text(json.dumps(stoker.pack(told["signed"], out / "packed"))))
attempt("expired", lambda: train(told["expired"], "expired"))
attempt("missing", lambda: train(told["missing"], "missing"))
attempt("refused", lambda: train(told["refused"], "refused", fetch={"deadline": 1}))
attempt("storage", lambda: stoker.WebDataset(told["signed"], storage_options={"secret": told["password"]}))
attempt("piped", lambda: stoker.WebDataset("pipe:curl -H 'Authorization: " + told["password"] + "' http://h/x.tar"))
kept()
"""


def searched(root: Path, secrets: Iterable[str] = (HUSH,)) -> str:
    """Fails where a secret is below a folder; returns the names of the files that were searched."""
    names = []
    for path in sorted(root.rglob("*")):
        for one in secrets:
            assert one not in str(path)
            assert not path.is_file() or one.encode() not in path.read_bytes(), path
        if path.is_file():
            names.append(str(path.relative_to(root)))
    return "\n".join(names)


def environment(tmp_path: Path) -> dict[str, str]:
    """An environment with a secret in each variable that a store reads, and in the files that they name."""
    home = tmp_path / "home"
    for name, text in {
        ".aws/credentials": "[default]\naws_access_key_id = HUSHid\naws_secret_access_key = HUSHsecret\n",
        ".netrc": "machine example.com login HUSHuser password HUSHpassword\n",
        ".cache/huggingface/token": "HUSHtoken",
        "gcs.json": json.dumps(
            {"type": "authorized_user", "client_secret": "HUSHsecret", "refresh_token": "HUSHtoken"}
        ),
    }.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    secrets = (
        "AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AZURE_STORAGE_KEY AZURE_STORAGE_SAS_TOKEN HF_TOKEN"
    )
    return {
        **os.environ,
        **{name: f"HUSH{name.lower()}" for name in secrets.split()},
        "AZURE_STORAGE_CONNECTION_STRING": "AccountName=a;AccountKey=HUSHkey==",
        "GOOGLE_APPLICATION_CREDENTIALS": str(home / "gcs.json"),
        "HOME": str(home),
        "STOKER_CACHE": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join([str(Path(stoker.__file__).parents[1]), str(Path(__file__).parent)]),
    }


def run(
    command: list[str], env: dict[str, str], given: str = "", secrets: Iterable[str] = (HUSH,)
) -> subprocess.CompletedProcess[str]:
    """Runs a command, whose output has no secret, nor has the command line of any process that it starts."""
    pipe, before = subprocess.PIPE, frozenset(os.listdir("/proc"))
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        over, lines = threading.Event(), set[bytes]()
        watch = threading.Thread(
            target=_watched, args=({*before, str(process.pid)}, env["STOKER_CACHE"].encode(), over, lines)
        )
        watch.start()
        try:
            out, err = process.communicate(given, timeout=180)
        finally:
            process.kill()
            over.set()
            watch.join()
    for one in secrets:
        assert one not in out + err, out + err
        assert one.encode() not in b"\n".join(lines), lines
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _watched(others: set[str], cache: bytes, over: threading.Event, lines: set[bytes]) -> None:
    """The command lines of all that runs with this cache folder, but for others: what ran before, and the process whose
    command line the test has written."""
    while not over.wait(0.01):
        for name in set(os.listdir("/proc")) - others:
            with contextlib.suppress(OSError):
                if name.isdigit() and cache in Path("/proc", name, "environ").read_bytes():
                    lines.add(Path("/proc", name, "cmdline").read_bytes())


def test_no_secret_anywhere_in_python(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    signed = [store.signed(f"train-00{i}.tar") for i in range(2)]
    told = {
        "out": str(out),
        "signed": signed,
        "private": [store.private(f"train-00{i}.tar") for i in range(2)],
        "expired": [signed[0].replace("HUSHsignature1", "HUSHold"), signed[1]],
        "missing": store.signed("train-{000..003}.tar"),
        "refused": f"http://u:{PASSWORD}@127.0.0.1:1/x.tar?sig=HUSH",
        "password": PASSWORD,
    }
    env = environment(tmp_path)
    done = run([sys.executable, "-c", SCRIPT], env, json.dumps(told))
    assert done.returncode == 0, done.stderr
    names = searched(out) + searched(tmp_path / "cache")
    assert "packed/manifest.json" in names
    assert (out / "lines").read_bytes().count(b"engine") >= 2
    assert len((out / "memory").read_bytes()) > 4096
    for name in ("signed", "private"):
        told_of = json.loads((out / f"{name}.json").read_text())
        assert sorted(i for batch in told_of["ids"] for i in batch) == list(range(12))
        assert f"http://{store.address}/{name}/train-000.tar" in told_of["shown"][1]
    for name in ("signed", "private"):  # in this process, because it imports torch
        (url,) = stoker.WebDataset(told[name]).to_tuple("__url__")[0]
        assert url == f"http://{store.address}/{name}/train-000.tar"
    for name, code, want in (
        ("expired", "denied", f"http://{store.address}/signed/train-000.tar"),
        ("missing", "not_found", "train-002.tar"),
        ("refused", "unreachable", "http://127.0.0.1:1/x.tar"),
        ("storage", "config", ".netrc"),
        ("piped", "config", "http://h/x.tar"),
    ):
        text = (out / f"{name}.error").read_text()
        assert text.startswith(code + "\n"), text
        assert want in text

    # A renewed signature finds the same index, the same data and the same order.
    indexes = sorted((tmp_path / "cache").rglob("*"))
    times = [path.stat().st_mtime_ns for path in indexes if path.is_file()]
    store.signature = "HUSHsignature2"
    told["signed"] = [store.signed(f"train-00{i}.tar") for i in range(2)]
    before = (out / "signed.json").read_text()
    script = SCRIPT.partition('train(told["private"]')[0]
    again = run([sys.executable, "-c", script], env, json.dumps(told))
    assert again.returncode == 0, again.stderr
    assert sorted((tmp_path / "cache").rglob("*")) == indexes
    assert [path.stat().st_mtime_ns for path in indexes if path.is_file()] == times
    for key in ("ids", "state"):
        assert json.loads((out / "signed.json").read_text())[key] == json.loads(before)[key]


def test_no_secret_anywhere_in_the_command(store: Store, tmp_path: Path) -> None:
    env, out = environment(tmp_path), tmp_path / "out"
    out.mkdir()
    engine = os.environ.get("STOKER_ENGINE") or str(TOP / "build" / "stoker")
    signed = [store.signed(f"train-00{i}.tar") for i in range(2)]
    spec = tmp_path / "given.json"
    spec.write_text(json.dumps({"dataset": {"path": signed}, "batch": {"size": 4}}))
    told = []
    for arguments in (
        ["bench", "--spec", str(spec), "--epochs", "1", "--json"],
        ["inspect", *signed, "--all", "--json"],
        ["inspect", *signed],
        ["stats", *signed, "--headers"],
        ["ls", *signed, "--json"],
        ["cat", signed[0], "3"],
        ["verify", *signed],
        ["index", *signed],
        ["order", str(spec), "--json"],
        ["doctor", *signed, "--quick", "--seconds", "1", "--json"],
        ["verify-resume", str(spec), "--kills", "1", "--steps", "3"],
        ["tune", "--spec", str(spec), "--budget", "2", "--playbook", str(out / "playbook.yaml"), "--plot", ""],
        ["pack", *signed, str(out / "packed")],
    ):
        done = run([engine, *arguments], env)
        assert done.returncode == 0, (arguments[0], done.stderr)
        told.append(done.stdout)
    assert f"http://{store.address}/signed/train-000.tar" in told[1]
    store.signature = "HUSHsignature2"
    expired = [run([engine, *arguments], env) for arguments in (["ls", signed[0]], ["ls", signed[0], "--json"])]
    refused = run([engine, "ls", signed[0], "--secret-key", PASSWORD], env)
    spec.write_text(json.dumps({"dataset": {"path": "x", "storage": {"aws_secret_access_key": PASSWORD}}}))
    refused_too = run([engine, "bench", "--spec", str(spec)], env)
    assert [one.returncode for one in expired] == [5, 5], expired
    assert (refused.returncode, refused_too.returncode) == (2, 2)
    assert ".netrc" in refused.stderr
    assert "AWS_SECRET_ACCESS_KEY" in refused_too.stderr
    assert "packed/manifest.json" in searched(out)  # a busy machine gets no playbook
    assert searched(tmp_path / "cache")


# One store in success and in each fault: what is printed, logged and written is searched. The control of the proxy
# before it comes through a pipe, too.
FAULTS = (
    "",
    "any * status=403 code=AccessDenied",
    "any * status=401",
    "any * status=400 code=ExpiredToken",
    "any * status=500",
    "any * status=429 retry-after=60",
    "any * redirect=http://169.254.169.254",
    "any * redirect=loop",
    "any * reset=0",
    "range * shift=3",
    "range * gzip",
    "list * cut=40",
    "list * double",
)
STORE_SCRIPT = """
import json, logging, os, pathlib, sys, urllib.request
import stoker

logging.basicConfig(level=logging.DEBUG)
told = json.load(sys.stdin)
out = pathlib.Path(told["out"])
codes = []
for number, fault in enumerate(told["faults"]):
    rules = urllib.request.Request(told["control"] + "/rules", json.dumps([fault] if fault else []).encode())
    urllib.request.urlopen(rules).close()
    name = out / f"{number}.json"
    try:
        data = stoker.WebDataset(told["path"], storage_options=told["options"]).decode().to_tuple("cls", "__url__")
        with stoker.DataLoader(data, 4, shuffle=True, seed=1, output="numpy", fetch={"deadline": 1}) as loader:
            shown = [[batch.ids.tolist(), str(batch[1])] for batch in loader]
            shown += [loader.state_dict(), loader.stats(), repr(loader), repr(data), loader.receipt()]
            name.write_text(json.dumps(shown, default=str))
        codes.append("")
    except stoker.StokerError as error:
        name.write_text(f"{error.code}\\n{error}\\n{error!r}\\n{error.where}\\n{vars(error)}")
        print(error)
        codes.append(error.code)
(out / "codes").write_text(json.dumps(codes))
"""


@pytest.mark.parametrize("scheme", mostly(["s3", "gs", "az", "az with a signature", "hf"], "s3"))
def test_no_secret_of_a_store_whatever_it_answers(scheme: str, tmp_path: Path) -> None:
    data = tmp_path / "data" / "tar"
    data.mkdir(parents=True)
    for number in range(2):
        make_tar(data / f"train-00{number}.tar", 6 * number, 6)
    kind = scheme.partition(" ")[0]
    start: Any = {"s3": stores.s3, "gs": clouds.gcs, "az": clouds.azure}.get(kind)
    opened = clouds.hub(tmp_path / "data") if kind == "hf" else start(tmp_path / "store")
    with opened as store, stores.proxy(store) as net:
        if kind != "hf":
            store.put_folder(data, "tar")
        options: dict[str, Any] = {}
        query, secrets = "", [value for key, value in net.env.items() if key in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY")]
        env = {**environment(tmp_path), **net.env}
        env.pop("AWS_SESSION_TOKEN")  # the server knows no temporary keys
        if kind == "gs":
            env["MY_TOKEN"] = "HUSHtoken"
            options = {"endpoint_url": net.url, "token_env": "MY_TOKEN"}
        elif scheme == "az":
            secrets.append(clouds.KEY)
        elif kind == "az":
            query = "?" + clouds.sas()
            secrets += [query, parse_qs(query[1:])["sig"][0], query.partition("sig=")[2]]
            options = {"endpoint_url": f"{net.url}/{clouds.ACCOUNT}"}
            env.pop("AZURE_STORAGE_CONNECTION_STRING")
        elif kind == "hf":
            secrets.append("X-Amz-Signature=")
        secrets.append(HUSH)
        if kind != "az":
            env.pop("AZURE_STORAGE_CONNECTION_STRING")
        path = [store.name(f"tar/train-00{number}.tar") + query for number in range(2)]
        out = tmp_path / "out"
        out.mkdir()
        told = {"out": str(out), "path": path, "options": options, "faults": FAULTS, "control": net.control}
        done = run([sys.executable, "-c", STORE_SCRIPT], env, json.dumps(told), secrets)
        assert done.returncode == 0, done.stderr
        codes = dict(zip(FAULTS, json.loads((out / "codes").read_text()), strict=True))
        assert codes[""] == "", codes
        assert codes["any * status=403 code=AccessDenied"] == "denied", codes
        assert codes["any * status=500"] == "unreachable", codes
        assert codes["any * status=429 retry-after=60"] == "throttled", codes
        assert codes["any * reset=0"] in ("unreachable", "unreadable"), codes

        engine = os.environ.get("STOKER_ENGINE") or str(TOP / "build" / "stoker")
        spec = tmp_path / "spec.json"
        where = {"path": path, "storage": options}
        spec.write_text(json.dumps({"dataset": where, "batch": {"size": 4}, "fetch": {"deadline": "1s"}}))
        for fault, status in ((FAULTS[0], 0), (FAULTS[1], 5), (FAULTS[4], 5)):
            net.rules(*filter(None, [fault]))
            for arguments in (["bench", "--spec", str(spec), "--epochs", "1"], ["order", str(spec)]):
                done = run([engine, *arguments, "--json"], env, secrets=secrets)
                assert done.returncode == status, (fault, arguments, done)
    assert searched(out, secrets)
    assert searched(tmp_path / "cache", secrets)


def test_one_host_has_one_storage(store: Store) -> None:
    both = [
        stoker.WebDataset(f"http://{store.address}/open/train-00{i}.tar", storage_options={"region": str(i)})
        .decode()
        .to_tuple("cls")
        for i in range(2)
    ]
    says = rf'"http://{store.address}" has two different settings of storage_options'
    with pytest.raises(stoker.ConfigError, match=says):
        stoker.DataLoader(stoker.Mixture(both), 4)
