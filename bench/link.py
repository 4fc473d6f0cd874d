"""The far side of bench.remote: versitygw over a folder, and slownet before it (standard library only).

Both are children of the driver, run on the processors that are left over, and end with it. What a store holds is put
through it once and kept: a file that was only copied into its folder would have no ETag, and nothing that reads it
could hold on to one version.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import datetime
import hashlib
import hmac
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import rig

BUCKET, REGION = "data", "us-east-1"
KEY, SECRET = "AKIABENCHREMOTE00000", "bench-remote-secret-of-no-value-at-all"
LATENCY, CONNECTION, TOTAL = "20ms", "90MB/s", "250MB/s"
_USERS = ("AWS_CA_BUNDLE", "AWS_PROFILE", "AWS_SESSION_TOKEN")  # variables that would change what clients do
LINK_BYTES, LINK_LATENCY = 250e6, 0.02
GATEWAY = rig.ROOT / "build" / "servers" / "versitygw"
PROXY = rig.ROOT / "build" / "slownet"
SLOW = rig.ROOT / "build" / "slowfs"


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _wait(port: int) -> None:
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.5):
            return
        time.sleep(0.05)
    raise SystemExit("versitygw does not listen")


def spare_cpus(used: Sequence[int]) -> list[int]:
    """The processors that the loaders do not run on; all, where none is left."""
    every = sorted(os.sched_getaffinity(0))
    return [cpu for cpu in every if cpu not in used] or every


class Store:
    """versitygw over a folder, which is kept. Use as a context."""

    def __init__(self, folder: Path, cpus: Sequence[int]) -> None:
        self.folder, self.cpus = folder, list(cpus)
        if not GATEWAY.exists():
            raise SystemExit("build/servers/versitygw is missing; make servers builds it")

    def __enter__(self) -> Store:
        (self.folder / BUCKET).mkdir(parents=True, exist_ok=True)
        self.port = _free_port()
        command = [str(GATEWAY), "-p", f"127.0.0.1:{self.port}", "--keep-alive", "-q", "posix", str(self.folder)]
        env = {**os.environ, "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
        self.process = _start(command, self.cpus, env=env, stdout=subprocess.DEVNULL)
        _wait(self.port)
        return self

    def __exit__(self, *exc: object) -> None:
        _end(self.process)

    def put(self, files: Mapping[str, Path]) -> None:
        """Stores files by their keys, a few at once."""
        local = threading.local()

        def one(item: tuple[str, Path]) -> None:
            if not hasattr(local, "connection"):
                local.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
            target = "/" + BUCKET + "/" + urllib.parse.quote(item[0])
            body = item[1].read_bytes()
            local.connection.request("PUT", target, body, _signed("PUT", f"127.0.0.1:{self.port}", target))
            answer = local.connection.getresponse()
            said = answer.read()
            if answer.status != 200:
                raise SystemExit(f"versitygw refuses {item[0]}: {answer.status} {said[:300]!r}")

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for _ in pool.map(one, files.items()):
                pass


def _signed(method: str, host: str, target: str) -> dict[str, str]:
    """The headers of a request with a signature of version 4, which does not cover the body."""
    now = datetime.datetime.now(datetime.timezone.utc)
    stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    body = "UNSIGNED-PAYLOAD"
    headers = {"host": host, "x-amz-content-sha256": body, "x-amz-date": stamp}
    names = ";".join(headers)
    canonical = "\n".join([method, target, "", *(f"{k}:{v}" for k, v in headers.items()), "", names, body])
    scope = f"{day}/{REGION}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + SECRET).encode()
    for part in (day, REGION, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), "sha256").digest()
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={KEY}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return headers


@dataclass(frozen=True)
class Certificate:
    """Of 127.0.0.1, signed by itself: file is what clients trust."""

    file: Path
    key: Path


def certificate(folder: Path) -> Certificate:
    found = Certificate(folder / "cert.pem", folder / "key.pem")
    openssl = shutil.which("openssl")
    if openssl is None:
        raise SystemExit("openssl is missing: it makes the certificate of the row over TLS")
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "7"]
    command += ["-keyout", str(found.key), "-out", str(found.file), "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    return found


class Link:
    """slownet before a store. Use as a context."""

    def __init__(self, store: Store, cert: Certificate | None = None) -> None:
        self.store, self.cert = store, cert

    def __enter__(self) -> Link:
        command = [str(PROXY), f"http://127.0.0.1:{self.store.port}"]
        command += ["--latency", LATENCY, "--connection", CONNECTION, "--total", TOTAL]
        if self.cert is not None:
            command += ["--cert", str(self.cert.file), "--key", str(self.cert.key)]
        self.process = _start(command, self.store.cpus, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        said = json.loads(self.process.stdout.readline())
        self.url, self._control = said["url"], said["control"]
        return self

    def __exit__(self, *exc: object) -> None:
        _end(self.process)

    def adopt(self) -> None:
        """Puts into the environment what clients of the ecosystem read, and takes out what is the user's own."""
        for name in _USERS:
            os.environ.pop(name, None)
        os.environ.update(
            {
                "AWS_ENDPOINT_URL": self.url,
                "AWS_ENDPOINT_URL_S3": self.url,
                "S3_ENDPOINT_URL": self.url,  # s5cmd, Streaming
                "AWS_ACCESS_KEY_ID": KEY,
                "AWS_SECRET_ACCESS_KEY": SECRET,
                "AWS_REGION": REGION,
                "AWS_DEFAULT_REGION": REGION,
                "AWS_CONFIG_FILE": os.devnull,
                "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
                "AWS_EC2_METADATA_DISABLED": "true",
                "NO_PROXY": "127.0.0.1",
                "no_proxy": "127.0.0.1",
            }
        )
        if self.cert is not None:
            os.environ["AWS_CA_BUNDLE"] = str(self.cert.file)

    def _ask(self, path: str, body: str | None = None) -> Any:
        data = None if body is None else body.encode()
        with urllib.request.urlopen(f"{self._control}/{path}", data, timeout=30) as answer:
            return json.loads(answer.read())

    def counts(self) -> dict[str, Any]:
        """slownet's Counts, without the one entry for each object."""
        found: dict[str, Any] = self._ask("counts")
        found.pop("objects", None)
        return found

    def reset(self) -> None:
        self._ask("reset", "")

    def rules(self, *lines: str) -> None:
        self._ask("rules", "\n".join(lines))

    def change(self, **link: Any) -> None:
        self._ask("link", json.dumps(link))

    def restore(self) -> None:
        """The link as it was, without rules, and all counts at 0."""
        self.rules()
        self.change(requests=0)
        self.reset()


@contextlib.contextmanager
def slow_folder(folder: Path, scratch: Path, cpus: Sequence[int], read: str) -> Iterator[Path]:
    """A folder below scratch that shows another one, each read taking so long."""
    build_slow()
    at = scratch / "slow"
    at.mkdir()
    command = [str(SLOW), "mount", str(folder), str(at), f"--read={read}"]
    process = _start(command, cpus, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        while not os.path.ismount(at):
            if process.poll() is not None:
                assert process.stderr
                raise rig.PeerError("slowfs does not mount: " + process.stderr.read().strip())
            time.sleep(0.02)
        yield at
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)  # it unmounts
        _end(process)


def _start(command: list[str], cpus: Iterable[int], **how: Any) -> subprocess.Popen[Any]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, cpus), **how)


def _end(process: subprocess.Popen[Any]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def build() -> None:
    """Builds slownet, if it is not what the sources are."""
    _build("slownet", PROXY)


def build_slow() -> None:
    """Builds the command that mounts slowfs."""
    _build("score", SLOW)


def _build(name: str, to: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise SystemExit(f"no Go compiler: {name} cannot be built")
    command = [go, "-C", "harness", "build", "-buildvcs=false", "-o", str(to), f"./{name}/cmd"]
    subprocess.run(command, cwd=rig.ROOT, check=True)
