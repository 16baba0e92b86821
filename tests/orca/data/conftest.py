"""What the tests of zoo.orca.data share."""

from __future__ import annotations

import tempfile
from typing import Any

import pytest


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
