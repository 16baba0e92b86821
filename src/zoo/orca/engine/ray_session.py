"""Starting or joining Ray in this process, and stopping it so that no process, file, variable or handler is left."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from zoo.orca.engine.traces import Traces, await_end, descendants
from zoo.orca.errors import ContextError
from zoo.orca.optional import require

# Ray swaps 127.0.0.1 for the address of a network card; its neighbour is loopback too and is left alone.
LOOPBACK_NODE = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
# Ray puts sockets with long names below its folder, and a socket's path has room for 107 bytes.
LONGEST_FOLDER = 40
CONNECT_SECONDS = 10.0
AUTH_VARIABLES = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
QUIET_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_SCHEDULER_EVENTS": "0",
}


@dataclass(frozen=True)
class RaySettings:
    """How to start or join Ray."""

    cores: int | None = None
    address: str | None = None
    object_store_memory: int | None = None
    verbose: bool = False
    dashboard: bool = False
    worker_environment: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class _Session:
    """A connection to Ray that was made here, and what must go when it ends."""

    addresses: dict[str, Any]
    traces: Traces
    folder: Path | None
    daemons: list[int]

    def close(self) -> None:
        ray = require("ray", "Ray")
        processes = [process for pid in self.daemons for process in descendants(pid)]
        ray.shutdown()
        await_end(processes)
        self.traces.undo()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


_lock = threading.RLock()
_session: _Session | None = None


def ray_is_running() -> bool:
    """Whether this process is connected to Ray, whoever connected it; Ray is not loaded to find out."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(getattr(ray, "is_initialized", bool)())


def start_ray(settings: RaySettings) -> dict[str, Any]:
    """Start Ray on this machine, or join the cluster at `address`, and return its addresses.

    A connection that is there already is joined; one made by the user is left to the user to end.
    """
    global _session
    with _lock:
        ray = import_ray()
        if ray.is_initialized():
            return dict(_session.addresses) if _session is not None else addresses_of(ray)
        stop_ray()  # a user may have called ray.shutdown(): its folder is still there
        _session = _join(ray, settings) if settings.address else _start(ray, settings)
        return dict(_session.addresses)


def stop_ray() -> None:
    """End the connection that `start_ray` made and the processes it started; safe to call at any time."""
    global _session
    with _lock:
        session, _session = _session, None
        if session is not None:
            session.close()


def ray_pids() -> list[int]:
    """The Ray processes that were started here and run now."""
    if _session is None:
        return []
    return [process.pid for pid in _session.daemons for process in descendants(pid)]


def addresses_of(ray: Any) -> dict[str, Any]:
    """The addresses of a Ray that somebody else started."""
    context = ray.get_runtime_context()
    nodes = [node for node in ray.nodes() if node["Alive"] and node["NodeID"] == context.get_node_id()]
    here = nodes[0] if nodes else {}
    return {
        "node_ip_address": here.get("NodeManagerAddress"),
        "redis_address": None,
        "object_store_address": here.get("ObjectStoreSocketName"),
        "raylet_socket_name": here.get("RayletSocketName"),
        "webui_url": "",
        "session_dir": None,
        "address": context.gcs_address,
        "gcs_address": context.gcs_address,
    }


def auth_variables() -> dict[str, str]:
    """A token of this run that every connection must show, unless the user has set Ray's authentication himself."""
    if any(name in os.environ for name in AUTH_VARIABLES):
        return {}
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def import_ray() -> Any:
    """Import Ray so that no environment variable stays behind."""
    with Traces() as traces:
        ray = require("ray", "Ray")
    traces.undo_variables()  # importing it sets some
    return ray


def _start(ray: Any, settings: RaySettings) -> _Session:
    folder = make_ray_folder()
    before = {child.pid for child in psutil.Process().children()}
    arguments = {
        "num_cpus": settings.cores,
        "object_store_memory": settings.object_store_memory,
        "include_dashboard": settings.dashboard,
        "_temp_dir": str(folder),
        "_node_ip_address": LOOPBACK_NODE,
    }
    try:
        with Traces(QUIET_VARIABLES | auth_variables()) as traces:
            context = _connect(ray, settings, arguments)
    except Exception as error:
        await_end([child for child in psutil.Process().children() if child.pid not in before], patience=2)
        shutil.rmtree(folder, ignore_errors=True)
        raise ContextError(f"Ray did not start on this machine: {error} Type: orca doctor") from error
    traces.undo_variables()  # only the start needs them; Ray's processes have their own copy
    daemons = [child.pid for child in psutil.Process().children() if child.pid not in before]
    return _Session(dict(context.address_info), traces, folder, daemons)


def _join(ray: Any, settings: RaySettings) -> _Session:
    try:
        _check_listening(settings.address or "")
        with Traces(QUIET_VARIABLES | _joining_variables()) as traces:
            context = _connect(ray, settings, {"address": settings.address})
    except Exception as error:
        ray.shutdown()
        raise ContextError(
            f"No Ray cluster could be joined at {settings.address}: {error} Start one with:"
            " ray start --head --port=6379 (and put its token, if it asks for one, into RAY_AUTH_TOKEN)."
        ) from error
    traces.undo_variables()
    return _Session(dict(context.address_info), traces, folder=None, daemons=[])


def _joining_variables() -> dict[str, str]:
    """Show the token, if there is one: Ray does so by itself only when it starts a cluster."""
    has_token = any(name in os.environ for name in AUTH_VARIABLES[1:]) or (Path.home() / ".ray" / "auth_token").exists()
    return {"RAY_AUTH_MODE": "token"} if has_token and "RAY_AUTH_MODE" not in os.environ else {}


def _check_listening(address: str) -> None:
    """Raise at once if nothing listens at host:port, for which Ray itself would wait minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()


def _connect(ray: Any, settings: RaySettings, arguments: dict[str, Any]) -> Any:
    read_authentication_again()
    quiet = {
        "log_to_driver": settings.verbose,
        "logging_level": logging.INFO if settings.verbose else logging.ERROR,
        "runtime_env": {"env_vars": dict(settings.worker_environment)} if settings.worker_environment else None,
    }
    extra = {str(key).lstrip("-").replace("-", "_"): value for key, value in settings.extra.items()}
    return ray.init(**(quiet | arguments | extra))


def read_authentication_again() -> None:
    """Make Ray in this process look at its authentication variables as they are now."""
    # Ray reads mode and token once, when it is imported, and has no public way to take others in the same process.
    raylet = require("ray._raylet", "Ray")
    if hasattr(raylet, "AuthenticationTokenLoader"):
        raylet.Config.initialize("")
        raylet.AuthenticationTokenLoader.instance().reset_cache()


def make_ray_folder() -> Path:
    """A fresh folder for Ray's files, with a path short enough for its sockets."""
    parent = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="orca-ray-", dir="/tmp" if len(parent) > LONGEST_FOLDER else parent))
