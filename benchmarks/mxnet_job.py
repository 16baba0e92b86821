"""A kvstore job as one starts it by hand: the processes, and the environment variables that tell each its part.

The process that starts them imports nothing heavy, as no shell would. `python -m benchmarks.mxnet_job MARKS JSON` is
one of them: MXNet's scheduler and servers run while they import it, and a worker runs the script.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.ranks import WORKERS
from benchmarks.row import Report

ROLES = ("scheduler", *["server"] * WORKERS, *["worker"] * WORKERS)


def by_hand(job: dict[str, Any], on_servers: bool) -> Report:
    """The scheduler, as many servers as workers, and the workers; how fast they were, and whether they learnt."""
    with tempfile.TemporaryDirectory() as marks, contextlib.ExitStack() as started:
        start = time.perf_counter()
        arguments = json.dumps({"job": job, "on_servers": on_servers, "marks": marks})
        command = [sys.executable, "-m", "benchmarks.mxnet_job", arguments]
        place = _variables()
        roles = [subprocess.Popen(command, env=os.environ | place | {"DMLC_ROLE": role}) for role in ROLES]
        for process in roles:
            started.callback(process.kill)
        for role, process in zip(ROLES[::-1], roles[::-1], strict=True):  # the others wait for workers for ever
            if process.wait():
                raise RuntimeError(f"a {role} ended with the code {process.returncode}.")
        seconds = time.perf_counter() - start
        return Report(seconds, **json.loads(Path(marks, "facts").read_text()))


def _variables() -> dict[str, str]:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    return {
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(port),
        "DMLC_NUM_SERVER": str(WORKERS),
        "DMLC_NUM_WORKER": str(WORKERS),
        "DMLC_NODE_HOST": "127.0.0.1",
        "DMLC_INTERFACE": "lo",
    }


def main(arguments: str) -> None:
    from zoo.orca.mxnet_library import load

    load()  # a scheduler or server comes back from here only to end
    from benchmarks.mxnet_train import kvstore_worker

    kvstore_worker(**json.loads(arguments))


if __name__ == "__main__":
    main(*sys.argv[1:])
