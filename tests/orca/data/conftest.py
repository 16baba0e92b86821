"""What the tests of zoo.orca.data share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import pytest

BUCKET = "orca-tests"


@pytest.fixture
def s3_bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty bucket on moto's S3 server on loopback, as "s3://<bucket>", and the environment for it."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    try:
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield f"s3://{BUCKET}"
    finally:
        # Buckets outlive the server: moto keeps them in this process, where the next server would find them.
        urlopen(Request(f"http://{host}:{port}/moto-api/reset", method="POST")).close()
        server.stop()


@pytest.fixture(scope="session")
def imported_tensorflow() -> Any:
    """TensorFlow, which sets environment variables for good when it is imported."""
    import tensorflow

    return tensorflow


@pytest.fixture
def tf(imported_tensorflow: Any, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Any:
    """TensorFlow, with a folder of its own for the files that AutoGraph keeps until the process ends."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("autograph")))
    return imported_tensorflow
