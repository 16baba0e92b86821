"""Engines for every test that asks for one, and a check after every test that nothing was left behind."""

from __future__ import annotations

import functools
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import _pytest.runner
import pytest
from hypothesis import HealthCheck, settings

import side_by_side
import spark_archive

ENGINES = ("local", "spark", "ray")
WORKERS = 4
BUCKET = "orca-tests"

# Set before anything is started: every process of this run carries the mark, every temporary file lies in the folder.
# Test processes side by side have marks and folders of their own, which the one that started them knows.
# A short path: Ray's sockets must fit into 107 characters.
ROOT = os.environ["TMPDIR"] if side_by_side.NAME else tempfile.mkdtemp(prefix="ot-")
FOLDER = f"{ROOT}-{side_by_side.NAME}" if side_by_side.NAME else ROOT
MARK = f"{os.environ[side_by_side.MARK]}-{side_by_side.NAME}" if side_by_side.NAME else uuid.uuid4().hex
os.makedirs(FOLDER, mode=0o700, exist_ok=True)
os.environ[side_by_side.MARK] = MARK
os.environ["TMPDIR"] = FOLDER
tempfile.tempdir = FOLDER
# Ray's workers step back for everything else on the machine (nice 15): beside a busy test process they would starve.
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - Ray spells it so
spark_archive.set_java_options()
SHORT_LIVED = str(Path(__file__).parent / "short_lived")
if SHORT_LIVED not in sys.path:  # test processes side by side have it already
    sys.path.append(SHORT_LIVED)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [SHORT_LIVED, os.environ.get("PYTHONPATH")]))

from traces import Traces  # noqa: E402 - it looks at the folder set above

# How long an example takes says more about what else runs than about the test.
settings.register_profile("orca", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("orca")


def pytest_addoption(parser):
    parser.addoption("--engines", default=",".join(ENGINES), help="which engines to test: local,spark,ray")


def pytest_configure(config):
    # It would tell every process below which test runs. A driver whose variables change must import all again.
    _pytest.runner._update_current_test_var = lambda item, when: None
    unknown = set(config.getoption("--engines").split(",")) - set(ENGINES)
    if unknown:
        raise pytest.UsageError(f"--engines takes {','.join(ENGINES)}, not {','.join(sorted(unknown))}")


def pytest_generate_tests(metafunc):
    if "engine" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--engines").split(",")
        marker = metafunc.definition.get_closest_marker("engines")
        meant = marker.args if marker else ENGINES
        metafunc.parametrize("engine", [name for name in meant if name in chosen], indirect=True, scope="session")


def pytest_collection_modifyitems(items):
    """Tests that start engines of their own come first: only one context can be current."""
    items.sort(key=lambda item: "engine" in item.fixturenames)
    items[:] = side_by_side.lone_ones_last(items)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session):
    """Before xdist tells the process that deals, which then looks for them."""
    if side_by_side.NAME:
        side_by_side.write_scopes(Path(ROOT), session.items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    if not side_by_side.NAME:
        return (yield)
    with turns().turn(item, nextitem):
        return (yield)


@functools.cache
def turns():
    return side_by_side.Turns(Path(ROOT))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return side_by_side.scheduler(config, log, Path(ROOT))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """A test process that died has left its engine running."""
    if error:
        side_by_side.clean_up(f"{MARK}-{node.gateway.id}", f"{ROOT}-{node.gateway.id}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish():
    """Once every test process has ended, remove what a Ctrl-C kept it from ending."""
    yield
    if not side_by_side.NAME:
        side_by_side.clean_up(f"{MARK}-", f"{ROOT}-")
    shutil.rmtree(FOLDER, ignore_errors=True)


@pytest.fixture(scope="session")
def engine(request):
    """The current engine, with four workers' worth of slots: local, spark and ray in turn."""
    from zoo.orca import init_orca_context, stop_orca_context
    from zoo.orca.context import current_engine

    modes = {"local": "embedded", "spark": "local", "ray": "ray"}
    before = Traces.now()
    init_orca_context(modes[request.param], cores=WORKERS)
    yield current_engine()
    stop_orca_context()
    before.assert_same_now(f"the {request.param} engine")


@pytest.fixture(autouse=True)
def nothing_left_behind(request):
    """Fail a test that leaks a process, a thread, a port, a file or an environment variable."""
    running = request.getfixturevalue("engine") if "engine" in request.fixturenames else None
    before = Traces.now(running)
    yield
    before.assert_same_now(request.node.name, running)


@pytest.fixture
def in_folder(tmp_path, monkeypatch) -> Path:
    """A test that runs in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


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
