"""Ray alone, at an address, and beside Spark in one driver."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from traces import children
from zoo.orca import OrcaContext, init_orca_context, stop_orca_context
from zoo.orca.context import current_engine
from zoo.orca.errors import ContextError
from zoo.ray import RayContext
from zoo.ray.utils import is_local, resource_to_bytes, to_list

STORE = "100m"


@pytest.fixture
def stopped():
    yield
    stop_orca_context()


@pytest.fixture
def ray_head(monkeypatch):
    """The address of a Ray head that runs as a process of its own and asks for a token."""
    token = secrets.token_hex(32)
    monkeypatch.setenv("RAY_AUTH_TOKEN", token)
    folder = tempfile.mkdtemp(prefix="h-")
    command = [Path(sys.executable).parent / "ray", "start", "--head", "--port=0", "--node-ip-address=127.0.0.2"]
    command += [f"--temp-dir={folder}", "--include-dashboard=false", "--num-cpus=3", "--block", "--disable-usage-stats"]
    command += ["--object-store-memory=100000000"]
    head = subprocess.Popen(
        command,
        env=os.environ | {"RAY_AUTH_MODE": "token"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said = ""
    for line in head.stdout:
        said += line
        if "--block" in line:
            break
    yield re.search(r"127\.0\.0\.2:\d+", said).group()
    processes = [psutil.Process(head.pid), *psutil.Process(head.pid).children(recursive=True)]
    head.terminate()
    psutil.wait_procs(processes, timeout=20)
    head.stdout.close()
    shutil.rmtree(folder)


def double(x):
    """Doubled by a Ray task; a lambda travels by value, so that the workers need not import this file."""
    import ray

    return ray.get(ray.remote(lambda number: number * 2).remote(x))


class TestRayAlone:
    def test_local_twice_in_a_row(self, in_folder, stopped, capfd):
        before, handler = dict(os.environ), signal.getsignal(signal.SIGTERM)
        for _ in range(2):
            addresses = init_orca_context(cluster_mode="ray", cores=2, object_store_memory=STORE, env={"MINE": "yes"})
            import ray  # only now: importing it sets a variable, which a start takes back

            assert addresses["object_store_address"]
            assert addresses["node_ip_address"].startswith("127.")
            assert init_orca_context(runtime="ray", cores=2) == addresses
            assert current_engine().name == "ray"
            assert current_engine().cores == 2
            assert [double(number) for number in range(3)] == [0, 2, 4]
            assert ray.get(ray.remote(lambda: os.environ["MINE"]).remote()) == "yes"
            assert ray.get(ray.remote(lambda: os.environ["RAY_AUTH_MODE"]).remote()) == "token"
            assert os.environ == before
            assert OrcaContext.get_ray_context().sc is None
            with pytest.raises(ContextError, match=r'mode "ray" is active.*stop_orca_context\(\)'):
                init_orca_context("local")
            stop_orca_context()
            assert os.environ == before
            assert signal.getsignal(signal.SIGTERM) is handler
            assert children() == []
            assert not Path(addresses["session_dir"]).parent.exists()
            assert list(in_folder.iterdir()) == []
        assert capfd.readouterr() == ("", "")

    def test_a_head_is_joined_and_left_running(self, ray_head, stopped):
        addresses = init_orca_context(cluster_mode="ray", address=ray_head)
        import ray

        assert addresses["address"] == ray_head
        assert current_engine().cores == 3
        assert double(4) == 8
        stop_orca_context()
        assert not ray.is_initialized()
        assert init_orca_context(runtime="ray", address=ray_head)["address"] == ray_head

    def test_nothing_at_the_address_is_told_at_once(self):
        with pytest.raises(ContextError, match=r"No Ray cluster could be joined at 127.0.0.1:1.*ray start --head"):
            init_orca_context("ray", address="127.0.0.1:1")

    def test_ray_of_the_users_own_is_joined_and_left(self, stopped):
        """Joined because it is there, and not stopped because somebody else started it."""
        script = """
import logging, ray
ray.init(num_cpus=1, include_dashboard=False, object_store_memory=100_000_000, logging_level=logging.ERROR)
from zoo.orca import init_orca_context, stop_orca_context
print(bool(init_orca_context("ray")["object_store_address"]))
stop_orca_context()
print(ray.is_initialized())
"""
        folder = tempfile.mkdtemp(prefix="u-")
        environment = os.environ | {"RAY_TMPDIR": folder, "HOME": folder}
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
        shutil.rmtree(folder)
        assert done.stdout.split() == ["True", "True"], done.stderr


class TestRayBesideSpark:
    def test_local_spark(self, in_folder, stopped):
        before = dict(os.environ)
        sc = init_orca_context(cores=2, memory="512m", init_ray_on_spark=True, object_store_memory=STORE)
        import ray

        context = OrcaContext.get_ray_context()
        assert context.initialized
        assert context.sc is sc
        assert (context.is_local, context.num_ray_nodes, context.ray_node_cpu_cores, context.total_cores) == (
            True,
            1,
            2,
            2,
        )
        assert "object_store_address" in context.address_info
        assert context.init() == context.address_info
        assert context.redis_address == context.address_info["address"]
        assert current_engine().name == "spark"
        assert double(sc.parallelize([1, 2]).sum()) == 6
        context.stop()
        assert not context.initialized
        pids = [pid for info in context.ray_processesMonitor.process_infos for pid in info.pids]
        assert pids
        assert not any(psutil.pid_exists(pid) for pid in pids)
        again = RayContext(sc, object_store_memory=STORE, ray_node_cpu_cores=3, env={"A": "b"})
        assert RayContext.get(initialize=False) is again
        assert not again.initialized
        assert RayContext.get() is again
        assert ray.cluster_resources()["CPU"] == 3
        assert sc.parallelize([1]).count() == 1
        stop_orca_context()
        assert not ray.is_initialized()
        assert {name: os.environ.get(name) for name in before} == before
        assert children() == []
        with pytest.raises(Exception, match="No RayContext is active"):
            RayContext.get()

    def test_it_needs_a_spark_context(self):
        with pytest.raises(AssertionError, match="sc is None"):
            RayContext(None)


class TestUtils:
    @pytest.mark.parametrize(
        ("size", "expected"),
        [("10b", 10), ("10k", 10_000), ("10m", 10_000_000), ("10g", 10**10), ("1G", 10**9), (None, None)],
    )
    def test_sizes(self, size, expected):
        assert resource_to_bytes(size) == expected

    @pytest.mark.parametrize("size", ["10.5m", "10", "10t", "m", "", "10 km", "-1g"])
    def test_bad_sizes(self, size):
        with pytest.raises(ValueError, match="must be a whole number"):
            resource_to_bytes(size)

    def test_to_list(self):
        assert (to_list([1]), to_list((1, 2)), to_list("ab")) == ([1], [1, 2], ["ab"])

    @pytest.mark.parametrize(
        ("master", "expected"),
        [("local", True), ("local[2]", True), ("local-cluster[2,1,512]", False), ("yarn", False)],
    )
    def test_is_local(self, master, expected):
        class Context:
            pass

        Context.master = master
        assert is_local(Context) is expected
