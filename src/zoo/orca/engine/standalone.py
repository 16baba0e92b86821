"""A Spark standalone cluster on this machine: one master and some workers, each a process that listens on loopback."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from zoo.orca.engine.java import find_java, make_java_home
from zoo.orca.engine.spark_settings import LOOPBACK, check_count, check_memory, memory_mebibytes
from zoo.orca.engine.traces import await_end, descendants
from zoo.orca.errors import ContextError
from zoo.orca.optional import require

START_SECONDS = 90.0
MASTER_CLASS = "org.apache.spark.deploy.master.Master"
WORKER_CLASS = "org.apache.spark.deploy.worker.Worker"
# Ports are chosen by the kernel, and the log is where the daemons tell them.
MASTER_PORT = re.compile(r"Successfully started service 'sparkMaster' on port (\d+)")
WORKER_REGISTERED = re.compile(r"Registering worker ")
HEADROOM_MEBIBYTES = 1024

LOG_CONFIG = """status = error
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


class StandaloneCluster:
    """One master and `num_workers` workers; every connection to them needs the cluster's own secret."""

    def __init__(self, num_workers: int, cores: int, memory: str, extra_memory: str | None = None, numa: bool = False):
        self.num_workers = check_count("num_executors", num_workers)
        self.cores = check_count("executor_cores", cores)
        self.memory = memory_mebibytes(check_memory("executor_memory", memory)) + HEADROOM_MEBIBYTES
        if extra_memory is not None:
            self.memory += memory_mebibytes(extra_memory)
        self.numa = numa
        self._secret = secrets.token_hex(32)
        self.url = ""
        self._folder: Path | None = None
        self._processes: list[subprocess.Popen[bytes]] = []

    def __repr__(self) -> str:
        return f"StandaloneCluster({self.num_workers} workers of {self.cores} cores, {self.url or 'not started'})"

    @property
    def secrets(self) -> dict[str, str]:
        """The settings that let an application into this cluster."""
        return {"spark.authenticate.secret": self._secret}

    def start(self) -> StandaloneCluster:
        """Start master and workers, and return when every worker is registered."""
        binding = [numa_prefix(number) if self.numa else [] for number in range(self.num_workers)]
        java = find_java()
        self._folder = Path(tempfile.mkdtemp(prefix="orca-standalone-"))
        try:
            java_home = make_java_home(self._folder, java)
            (self._folder / "log4j2.properties").write_text(LOG_CONFIG)
            self._spawn("master", java_home, [], MASTER_CLASS, "--host", LOOPBACK, "--port", "0", "--webui-port", "0")
            self.url = f"spark://{LOOPBACK}:{self._await(MASTER_PORT, 1)}"
            for number, prefix in enumerate(binding):
                size = ["--cores", str(self.cores), "--memory", f"{self.memory}M"]
                listen = ["--host", LOOPBACK, "--port", "0", "--webui-port", "0"]
                self._spawn(f"worker-{number}", java_home, prefix, WORKER_CLASS, *listen, *size, self.url)
            self._await(WORKER_REGISTERED, self.num_workers)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End workers, their executors and the master, and remove their files; safe to call twice."""
        running = [process for daemon in self._processes for process in descendants(daemon.pid)]
        for daemon in reversed(self._processes):
            daemon.terminate()
        await_end(running)
        for daemon in self._processes:
            daemon.wait()
        self._processes = []
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _spawn(self, name: str, java_home: Path, prefix: list[str], main_class: str, *arguments: str) -> None:
        if self._folder is None:
            raise ContextError("The standalone cluster is not started. Call start() first.")
        home = Path(str(require("pyspark", "A Spark standalone cluster").__file__)).parent
        work = self._folder / name
        work.mkdir()
        options = [f"-Dlog4j2.configurationFile=file:{self._folder / 'log4j2.properties'}", "-Dspark.authenticate=true"]
        options += ["-Dspark.master.rest.enabled=false"]  # it would take port 6066, whoever has it
        variables = {
            "_SPARK_AUTH_SECRET": self._secret,
            "JAVA_HOME": str(java_home),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_DAEMON_MEMORY": "512m",
            "SPARK_DAEMON_JAVA_OPTS": " ".join(f'"{option}"' for option in options),
            "SPARK_WORKER_DIR": str(work),
            "SPARK_LOCAL_DIRS": str(work),
        }
        with open(self._folder / f"{name}.log", "wb") as log:
            command = [*prefix, str(home / "bin" / "spark-class"), main_class, *arguments]
            # A session of its own keeps Ctrl-C in the driver from ending the cluster under a running job.
            daemon = subprocess.Popen(
                command,
                env=os.environ | variables,
                cwd=work,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(daemon)

    def _await(self, pattern: re.Pattern[str], times: int) -> str:
        """Wait until the master has logged `pattern` so many times, and return what the last match found."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            found = pattern.findall(self._log("master"))
            if len(found) >= times:
                return found[-1]
            dead = [process for process in self._processes if process.poll() is not None]
            if dead or time.monotonic() > deadline:
                what = "ended" if dead else f"was not ready within {START_SECONDS:.0f} s"
                raise ContextError(f"The Spark standalone cluster {what}. The end of its logs:\n{self._tails()}")
            time.sleep(0.1)

    def _log(self, name: str) -> str:
        path = (self._folder or Path()) / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _tails(self, lines: int = 8) -> str:
        names = ["master", *(f"worker-{number}" for number in range(self.num_workers))]
        tails = ["\n".join([f"[{name}]", *self._log(name).splitlines()[-lines:]]) for name in names]
        return "\n".join(tails)


def numa_prefix(number: int) -> list[str]:
    """The command that binds worker `number` to one NUMA node, dealt round robin."""
    if shutil.which("numactl") is None:
        raise ContextError(
            "enable_numa_binding=True needs numactl, which is not on PATH. Type: apt-get install numactl"
        )
    nodes = len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or 1
    return ["numactl", f"--cpunodebind={number % nodes}", f"--membind={number % nodes}"]


_lock = threading.RLock()
_cluster: StandaloneCluster | None = None


def start_standalone(
    num_workers: int, cores: int, memory: str, extra_memory: str | None = None, numa: bool = False
) -> StandaloneCluster:
    """The standalone cluster of this process, started if there is none."""
    global _cluster
    with _lock:
        if _cluster is None:
            _cluster = StandaloneCluster(num_workers, cores, memory, extra_memory, numa).start()
        return _cluster


def stop_standalone() -> None:
    """Stop the standalone cluster of this process, if there is one."""
    global _cluster
    with _lock:
        cluster, _cluster = _cluster, None
        if cluster is not None:
            cluster.stop()
