"""Real stores for tests, on free ports of this machine: S3 (versitygw), HTTP (nginx), and slownet, the proxy that is as
slow and as broken as it is told to be.

    with s3(tmp_path / "s3") as store, proxy(store) as net:
        store.put_folder(folder, "train")
        monkeypatch.setenv(...)  # each of net.env, before an engine starts
        stoker.ImageFolder(store.name("train"))

tools/servers.sh installs the servers, and ``make build/slownet`` builds the proxy. Each ends with its block, and with
the test's process, however that ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

BUILD = Path(__file__).resolve().parents[2] / "build"
BUCKET, REGION = "bucket", "us-east-1"
PATIENCE = 60.0  # seconds until a server listens; only one that hangs takes as long


@dataclass
class Store:
    """A server and what it takes to reach it. Names of objects are put after ``prefix``."""

    url: str
    prefix: str
    env: dict[str, str]
    folder: Path  # where the server keeps its files

    def name(self, below: str = "") -> str:
        return self.prefix + below

    def put(self, name: str, data: bytes) -> None:
        """Writes a file below the folder of an HTTP server."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def put_folder(self, folder: Path | str, below: str = "") -> str:
        """Puts all files of a folder, and returns the name of the copy."""
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file():
                self.put(f"{below}/{path.relative_to(folder)}".lstrip("/"), path.read_bytes())
        return self.name(below)


@dataclass
class Bucket(Store):
    """A bucket of versitygw. What is put has an ETag; a file that is written into its folder has none."""

    key: str = field(repr=False, default="")
    secret: str = field(repr=False, default="")

    def put(self, name: str, data: bytes) -> None:
        self._ask("PUT", f"/{BUCKET}/{urllib.parse.quote(name)}", data)

    def make(self) -> None:
        self._ask("PUT", f"/{BUCKET}")

    def _ask(self, method: str, path: str, data: bytes = b"") -> None:
        """A request with AWS's signature, version 4."""
        host = self.url.removeprefix("http://")
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        headers = {"host": host, "x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-date": now}
        signed = ";".join(headers)
        lines = "".join(f"{key}:{value}\n" for key, value in headers.items())
        canonical = f"{method}\n{path}\n\n{lines}\n{signed}\nUNSIGNED-PAYLOAD"
        scope = f"{now[:8]}/{REGION}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = b"AWS4" + self.secret.encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        given = f"AWS4-HMAC-SHA256 Credential={self.key}/{scope}, SignedHeaders={signed}, Signature={signature}"
        connection = HTTPConnection(host, timeout=PATIENCE)
        connection.request(method, path, data, {**headers, "authorization": given})
        answer = connection.getresponse()
        assert answer.status < 300, f"{method} {path}: {answer.status} {answer.read()[:500]!r}"
        connection.close()


@dataclass
class Net:
    """slownet in front of a store: what reaches it through the proxy, and how it is told what to do."""

    url: str
    control: str
    prefix: str
    env: dict[str, str]

    def name(self, below: str = "") -> str:
        return self.prefix + below

    def pause(self) -> None:
        """From now on connections are refused, and those that are open are closed."""
        self._post("pause")

    def resume(self) -> None:
        self._post("resume")

    def link(self, **link: Any) -> None:
        self._post("link", json.dumps(link))

    def rules(self, *rules: str) -> None:
        self._post("rules", json.dumps(rules))

    def counts(self) -> Any:
        with urllib.request.urlopen(f"{self.control}/counts", timeout=PATIENCE) as answer:
            return json.load(answer)

    def _post(self, path: str, body: str = "") -> None:
        with urllib.request.urlopen(f"{self.control}/{path}", body.encode(), timeout=PATIENCE) as answer:
            answer.read()


@contextlib.contextmanager
def s3(folder: Path) -> Iterator[Bucket]:
    """versitygw over a folder, with one bucket."""
    program = installed("versitygw")
    folder.mkdir(parents=True, exist_ok=True)
    key, secret, port = "AK" + secrets.token_hex(9), secrets.token_hex(16), free_port()
    command = [str(program), "-p", f"127.0.0.1:{port}", "--keep-alive", "-q", "posix"]
    try:
        os.setxattr(folder, "user.stoker", b"")
    except OSError:  # a file system without attributes
        aside = folder.with_name(folder.name + ".sidecar")
        aside.mkdir()
        command += ["--sidecar", str(aside)]
    env = {
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_REGION": REGION,
        "AWS_CONFIG_FILE": os.devnull,  # nothing of the user's own
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    # Not as arguments: other processes see those.
    own = {**os.environ, "ROOT_ACCESS_KEY": key, "ROOT_SECRET_KEY": secret}
    with running([*command, str(folder)], port, own):
        store = Bucket(f"http://127.0.0.1:{port}", f"s3://{BUCKET}/", env, folder / BUCKET, key, secret)
        store.make()
        yield store


@contextlib.contextmanager
def http(folder: Path) -> Iterator[Store]:
    """nginx over a folder, with pages of its folders in JSON."""
    program = installed("nginx")
    own, port = folder.with_name(folder.name + ".nginx"), free_port()
    own.mkdir(parents=True)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    lines = [
        f"daemon off; master_process off; pid {own}/pid; error_log stderr crit;",
        "events { worker_connections 1024; }",
        "http { access_log off; default_type application/octet-stream; sendfile on; keepalive_requests 1000000;",
        *(f"{kind}_temp_path {own}/{kind};" for kind in kinds),
        f'server {{ listen 127.0.0.1:{port}; root "{folder}"; autoindex on; autoindex_format json; }}',
        "}",
    ]
    (own / "nginx.conf").write_text("\n".join(lines))
    url = f"http://127.0.0.1:{port}"
    command = [str(program), "-p", str(own), "-c", str(own / "nginx.conf"), "-e", "stderr"]
    with running(command, port, dict(os.environ)):
        yield Store(url, url + "/", {"NETRC": os.devnull}, folder)


@contextlib.contextmanager
def proxy(store: Store, *flags: str) -> Iterator[Net]:
    """slownet in front of a store, with flags of its command. It ends when its standard input does."""
    program = BUILD / "slownet"
    assert program.exists(), "there is no proxy to test with: run `make build/slownet`"
    pipe = subprocess.PIPE
    with subprocess.Popen([str(program), store.url, *flags], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            told = json.loads(process.stdout.readline())
            swapped = {key: value.replace(store.url, told["url"]) for key, value in store.env.items()}
            yield Net(told["url"], told["control"], store.prefix.replace(store.url, told["url"]), swapped)
        finally:
            process.stdin.close()
            process.wait(PATIENCE)


def installed(name: str) -> Path:
    program = BUILD / "servers" / name
    if not program.exists():
        pytest.skip(f"{name} is not installed: tools/servers.sh")
    return program


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextlib.contextmanager
def running(command: list[str], port: int, env: dict[str, str]) -> Iterator[None]:
    """A server that listens. The kernel kills it when this process ends, if the block does not."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], env=env, stdin=quiet, stdout=quiet)
    try:
        end = time.monotonic() + PATIENCE
        while True:
            assert process.poll() is None, f"{command[0]} has ended: {process.returncode}"
            assert time.monotonic() < end, f"{command[0]} does not listen"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.01)
        yield
    finally:
        process.kill()
        process.wait(PATIENCE)
