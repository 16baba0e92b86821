"""What a test may leave behind: processes, threads, ports, files and environment variables, before and after."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

PATIENCE_SECONDS = 30.0
LISTENS = (socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
# What importing TensorFlow and Ray sets for the life of the process.
LIBRARY_VARIABLES = {
    "ENABLE_RUNTIME_UPTIME_TELEMETRY",
    "HDF5_PLUGIN_PATH",
    "KMP_DUPLICATE_LIB_OK",
    "KMP_INIT_AT_FORK",
    "LD_LIBRARY_PATH",  # by OpenCV, which Keras imports where it is installed
    "RAY_CLIENT_MODE",
    "TORCHINDUCTOR_CACHE_DIR",
    "TF2_BEHAVIOR",
    "TPU_ML_PLATFORM",
    "TPU_ML_PLATFORM_VERSION",
}
LIBRARY_FILES = ("pytest", "torchinductor", "hsperfdata", "__autograph_generated_file")
LIBRARY_PROCESSES = ("multiprocessing.resource_tracker",)
# Threads that libraries keep for the life of the process, and that no one can end.
LIBRARY_THREADS = (
    "fsspecIO",
    "asyncio",
    "tqdm_monitor",
    "Dummy",
    "data-usage-metrics",
    "ThreadPoolExecutor",
    "pymonitor",
)
# What the engine of the session may start and end at any time while it runs.
ENGINE_PROCESSES = {"spark": ("pyspark",), "ray": ("ray",), "local": ()}
ENGINE_THREADS = {
    "spark": ("Thread-", "FinalizerWorker", "CallbackServer"),
    "ray": ("ray_", "Python", "Thread-"),
    "local": (),
}


@dataclass
class Traces:
    processes: dict[int, str]
    threads: set[str]
    ports: set[int]
    files: set[str]
    environment: dict[str, str]

    @staticmethod
    def now(engine: Any = None) -> Traces:
        return Traces(_processes(engine), _threads(engine), _ports(), _files(), _environment())

    def assert_same_now(self, who: str, engine: Any = None) -> None:
        """Fail if there is more now than there was; processes get a moment to end."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (left := self._left(engine)) and time.monotonic() < deadline:
            gc.collect()
            time.sleep(0.05)
        assert not left, f"{who} left behind: {left}"

    def _left(self, engine: Any) -> dict[str, Any]:
        now = Traces.now(engine)
        changed = {
            name: now.environment.get(name)
            for name in now.environment.keys() | self.environment.keys()
            if now.environment.get(name) != self.environment.get(name)
        }
        left = {
            "processes": {pid: text for pid, text in now.processes.items() if pid not in self.processes},
            "threads": now.threads - self.threads,
            "ports": now.ports - self.ports if engine is None or engine.name == "local" else set(),
            "files": now.files - self.files,
            "environment": changed,
        }
        return {kind: what for kind, what in left.items() if what}


def _processes(engine: Any) -> dict[int, str]:
    """Every process of this run but this one; orphans carry the mark too."""
    found = {}
    allowed = LIBRARY_PROCESSES + (ENGINE_PROCESSES[engine.name] if engine else ())
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid == os.getpid() or process.environ().get("ORCA_TEST_RUN") != os.environ["ORCA_TEST_RUN"]:
                continue
            text = " ".join(process.cmdline())
            if process.status() != psutil.STATUS_ZOMBIE and not any(word in text for word in allowed):
                found[process.pid] = text[:200]
    for pid in getattr(engine, "pids", ()):
        found.pop(pid, None)
    return found


def children() -> list[psutil.Process]:
    """The processes below this one, but for what libraries keep for the life of the process."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if not any(word in " ".join(process.cmdline()) for word in LIBRARY_PROCESSES):
                found.append(process)
    return found


def _threads(engine: Any) -> set[str]:
    allowed = LIBRARY_THREADS + (ENGINE_THREADS[engine.name] if engine else ())
    return {f"{each.name}#{each.ident}" for each in threading.enumerate() if not each.name.startswith(allowed)}


def _ports() -> set[int]:
    """Where this process listens. The kernel's table of all connections would say it too, and takes long to read."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.readlink(path).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(path.name))) as each:
                    if each.family in (socket.AF_INET, socket.AF_INET6) and each.getsockopt(*LISTENS):
                        found.add(each.getsockname()[1])
    return found


def _files() -> set[str]:
    folder = tempfile.gettempdir()
    return {name for name in os.listdir(folder) if not name.startswith(LIBRARY_FILES)}


def _environment() -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if name not in LIBRARY_VARIABLES | {"PYTEST_CURRENT_TEST"}
    }
