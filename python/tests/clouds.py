"""Real stores of the other clouds, beside those of stores.py: Google Cloud Storage (fake-gcs-server), Azure Blob
Storage (azurite), and the Hub's server of the Go tests, which the Hub's own clients hold right.

    with gcs(tmp_path / "gs") as store:
        store.put_folder(folder, "train")

Azurite and fake-gcs-server are there for `make test-remote` only.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import json
import os
import secrets
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import TOP
from stores import BUCKET, PATIENCE, Store, free_port, installed, running

ACCOUNT = "devstoreaccount1"  # Azurite's own, whose key everybody knows
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
DATASET = "tests/data"  # the Hub's


def remote(name: str, entry: str = "") -> Path:
    """A program of tools/servers.sh that `make test` does not install."""
    if os.environ.get("STOKER_SERVERS") != "all":
        pytest.skip(f"make test-remote runs this: it needs {name}")
    return installed(entry or name)


def ask(method: str, url: str, data: bytes = b"", **headers: str) -> None:
    given = {key.replace("_", "-"): value for key, value in headers.items()}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, data, given, method=method), timeout=PATIENCE
        ) as answer:
            answer.read()
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{method} {url}: {error.code} {error.read()[:500]!r}") from None


class Google(Store):
    def put(self, name: str, data: bytes) -> None:
        query = urllib.parse.urlencode({"uploadType": "media", "name": name})
        ask("POST", f"{self.url}/upload/storage/v1/b/{BUCKET}/o?{query}", data, Content_Type="application/octet-stream")


class Azure(Store):
    def put(self, name: str, data: bytes) -> None:
        url = f"{self.url}/{ACCOUNT}/{BUCKET}/{urllib.parse.quote(name)}?{sas('rlwc')}"
        ask("PUT", url, data, x_ms_blob_type="BlockBlob", Content_Type="application/octet-stream")

    def make(self) -> None:
        ask("PUT", f"{self.url}/{ACCOUNT}/{BUCKET}?restype=container&{sas('rlwc')}")


def sas(may: str = "rl") -> str:
    """A signature of the account, as its documentation says: a query, good for an hour."""
    end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
    text = "\n".join((ACCOUNT, may, "b", "sco", "", end, "", "", "2021-12-02", "", ""))
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), "sha256")).decode()
    return urllib.parse.urlencode({"sv": "2021-12-02", "ss": "b", "srt": "sco", "sp": may, "se": end, "sig": signature})


@contextlib.contextmanager
def gcs(folder: Path) -> Iterator[Store]:
    """fake-gcs-server over a folder, with one bucket."""
    program, port = remote("fake-gcs-server"), free_port()
    (folder / BUCKET).mkdir(parents=True)
    at = f"127.0.0.1:{port}"
    command = [program, "-scheme", "http", "-backend", "filesystem", "-filesystem-root", folder, "-log-level", "warn"]
    command += ["-host", "127.0.0.1", "-port", port, "-public-host", at, "-external-url", f"http://{at}"]
    with running([str(word) for word in command], port, dict(os.environ)):
        env = {"STORAGE_EMULATOR_HOST": f"http://{at}"}
        yield Google(f"http://{at}", f"gs://{BUCKET}/", env, folder)


@contextlib.contextmanager
def azure(folder: Path) -> Iterator[Store]:
    """Azurite, with one container."""
    program, port = remote("azurite", "npm/node_modules/azurite/dist/src/blob/main.js"), free_port()
    node = shutil.which("node")
    assert node, "azurite is installed, and node is not"
    folder.mkdir(parents=True)
    command = [node, program, "--blobHost", "127.0.0.1", "--blobPort", port, "--location", folder]
    command += ["--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    with running([str(word) for word in command], port, dict(os.environ)):
        url = f"http://127.0.0.1:{port}"
        env = {
            "AZURE_STORAGE_CONNECTION_STRING": f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};"
            f"AccountKey={KEY};BlobEndpoint={url}/{ACCOUNT};",
            "AZURE_CONFIG_DIR": os.devnull,  # nothing of the user's own
        }
        store = Azure(url, f"az://{BUCKET}/", env, folder)
        store.make()
        yield store


@contextlib.contextmanager
def hub(folder: Path) -> Iterator[Store]:
    """The files that a folder has now, as a private dataset of a Hub."""
    program = folder.with_name(folder.name + ".hub")
    build = ["go", "-C", str(TOP / "harness"), "build", "-o", str(program), "./hub"]
    subprocess.run(build, check=True, timeout=600)  # of a moment, but for the first time
    token = "hf_" + secrets.token_hex(16)
    pipe = subprocess.PIPE
    env = {**os.environ, "HUB_TOKEN": token}
    with subprocess.Popen([program, folder, DATASET], stdin=pipe, stdout=pipe, text=True, env=env) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            url = json.loads(process.stdout.readline())["url"]
            own = {"HF_ENDPOINT": url, "HF_TOKEN": token, "HF_TOKEN_PATH": os.devnull}
            yield Store(url, f"hf://datasets/{DATASET}/", own, folder)
        finally:
            process.stdin.close()
            status = process.wait(PATIENCE)
    assert status == 0, "the Hub's server has seen what no client may do"
