"""Ray nodes on the executors of a Spark cluster, through Ray's own `ray.util.spark`."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from zoo.orca.engine.ray_session import (
    AUTH_VARIABLES,
    QUIET_VARIABLES,
    RaySettings,
    auth_variables,
    import_ray,
    make_ray_folder,
    read_authentication_again,
    start_ray,
    stop_ray,
)
from zoo.orca.engine.traces import Traces, await_end
from zoo.orca.errors import ContextError

if TYPE_CHECKING:
    from pyspark import SparkContext


class RayOnSpark:
    """A Ray head beside the driver and one Ray node in each of some executors."""

    def __init__(self, sc: SparkContext, settings: RaySettings, num_nodes: int, head_cores: int):
        self._sc = sc
        self._settings = settings
        self._num_nodes = num_nodes
        self._head_cores = head_cores
        self._traces = Traces()
        self._folder: Path | None = None
        self._children: set[int] = set()

    def start(self) -> dict[str, Any]:
        """Start head and nodes, connect this process, and return Ray's addresses."""
        import_ray()
        self._folder = make_ray_folder()
        self._children = {child.pid for child in psutil.Process().children(recursive=True)}
        try:
            with Traces(QUIET_VARIABLES | auth_variables() | {"PATH": _path_with(sys.executable)}) as self._traces:
                addresses = self._set_up()
        except Exception as error:
            self.stop()
            raise ContextError(f"Ray did not start on the Spark cluster {self._sc.master}: {error}") from error
        self._traces.undo_variables()
        return addresses

    def stop(self) -> None:
        """End Ray on every executor and beside the driver; safe to call twice."""
        from ray.util.spark import shutdown_ray_cluster

        stop_ray()
        started = [child for child in psutil.Process().children(recursive=True) if child.pid not in self._children]
        try:
            shutdown_ray_cluster()
        except RuntimeError:
            pass  # Ray's way of saying that there is no cluster to shut down
        await_end([process for process in started if _is_ray(process)])
        self._traces.undo()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _set_up(self) -> dict[str, Any]:
        from pyspark.sql import SparkSession
        from ray.util.spark import setup_ray_cluster

        read_authentication_again()
        SparkSession.builder.getOrCreate()  # Ray looks for a session, not for a context
        settings = self._settings
        # The nodes are started by Spark tasks, which have the environment of the executors, not the driver's.
        shipped = {name: os.environ[name] for name in (*AUTH_VARIABLES, *QUIET_VARIABLES) if name in os.environ}
        shipped["PATH"] = _path_with(self._sc.pythonExec)
        before = dict(self._sc.environment)
        self._sc.environment.update(shipped)
        try:
            address, _ = setup_ray_cluster(
                max_worker_nodes=self._num_nodes,
                num_cpus_worker_node=settings.cores,
                num_gpus_worker_node=0,
                num_cpus_head_node=self._head_cores,
                object_store_memory_worker_node=settings.object_store_memory,
                object_store_memory_head_node=settings.object_store_memory,
                head_node_options={"include_dashboard": str(settings.dashboard).lower()},
                ray_temp_root_dir=str(self._folder),
            )
        finally:
            self._sc.environment.clear()
            self._sc.environment.update(before)
        import_ray().shutdown()  # the set-up connects to look at its nodes; this connection is made our own way
        return start_ray(replace(settings, address=address, cores=None))


def _path_with(python: str) -> str:
    """PATH with the folder of an interpreter first: Ray starts its nodes with the `ray` command that lies there."""
    return os.pathsep.join([os.path.dirname(python), os.environ.get("PATH", os.defpath)])


def _is_ray(process: psutil.Process) -> bool:
    try:
        return "ray" in " ".join(process.cmdline())
    except psutil.Error:
        return False
