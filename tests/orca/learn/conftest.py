"""What the tests of zoo.orca.learn share."""

from __future__ import annotations

import pytest

from zoo.orca.engine.gang import run_gang
from zoo.orca.engine.local import LocalEngine


@pytest.fixture(scope="module")
def gang():
    """Gangs on an embedded engine of this module's own, so that its processes are started once."""
    with LocalEngine(cores=4) as engine:
        yield lambda function, n, *args: run_gang(engine, function, n, *args)
