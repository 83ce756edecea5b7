"""An S3 server that runs here (moto's), as a storage that many machines see."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scripts.ports import free_port
from tests.waiting import wait

BUCKET = "bucket"

#: moto looks whether an object is there and then puts it, while other requests may do so, too; S3 does both in one.
_SERVER = """
import threading
from moto.s3.responses import S3Response
from moto.server import main
put, lock = S3Response.put_object, threading.Lock()
def put_one_at_a_time(self):
    with lock:
        return put(self)
S3Response.put_object = put_one_at_a_time
main()
"""


@contextmanager
def s3_server(directory: Path) -> Iterator[str]:
    """A bucket's URI; the variables of the environment say where it is, while the context lasts."""
    pytest.importorskip("moto")
    port = free_port()
    log = (directory / "log").open("wb")
    server = subprocess.Popen([sys.executable, "-c", _SERVER, "-p", str(port)], stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    with pytest.MonkeyPatch.context() as environment:
        for name, value in {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }.items():
            environment.setenv(name, value)

        def made() -> bool:
            try:
                with urllib.request.urlopen(urllib.request.Request(f"{url}/{BUCKET}", method="PUT")) as answer:
                    return bool(answer.status == 200)
            except urllib.error.URLError:
                return False

        wait(made, "the S3 server makes a bucket", timeout_s=120)
        yield f"s3a://{BUCKET}"
    server.kill()
    server.wait()
    log.close()
