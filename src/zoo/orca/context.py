"""Which engine is current, and how it is started, joined and stopped."""

from __future__ import annotations

import atexit
import inspect
import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zoo.orca.engine.clusters import (
    init_spark_on_k8s,
    init_spark_on_local,
    init_spark_on_yarn,
    init_spark_standalone,
    stop_spark_standalone,
)
from zoo.orca.engine.ray_session import RaySettings, ray_is_running, stop_ray
from zoo.orca.engine.session import active_spark_context, start_spark, stop_spark
from zoo.orca.engine.spark_settings import (
    SparkSettings,
    as_conf,
    base_conf,
    check_count,
    check_memory,
    memory_mebibytes,
)
from zoo.orca.errors import ContextError, InvalidArgumentError, PreconditionError
from zoo.orca.options import OrcaContext

if TYPE_CHECKING:
    from pyspark import SparkContext

    from zoo.orca.engine.base import Engine

__all__ = ["OrcaContext", "current_engine", "engine_of_spark", "init_orca_context", "stop_orca_context"]

logger = logging.getLogger(__name__)

MODES = {
    "local": "local",
    "standalone": "standalone",
    "spark-submit": "spark-submit",
    "yarn": "yarn",
    "yarn-client": "yarn",
    "k8s": "k8s",
    "k8s-client": "k8s",
    "ray": "ray",
    "embedded": "embedded",
}
SPARK_MODES = ("local", "standalone", "spark-submit", "yarn", "k8s")
RAY_OPTIONS = (
    "redis_port",
    "redis_password",
    "object_store_memory",
    "verbose",
    "env",
    "extra_params",
    "num_ray_nodes",
    "ray_node_cpu_cores",
    "include_webui",
)


@dataclass(frozen=True)
class _Request:
    """What `init_orca_context` was asked for."""

    mode: str
    cores: Any
    memory: str
    num_nodes: int
    options: Mapping[str, Any]

    def for_function(self, function: Callable[..., Any]) -> dict[str, Any]:
        """Those options that a function takes."""
        return {name: self.options[name] for name in inspect.signature(function).parameters if name in self.options}


@dataclass
class _State:
    mode: str | None = None
    engines: dict[str, Engine] = field(default_factory=dict)
    retired: list[Engine] = field(default_factory=list)
    owner: int = 0


_lock = threading.RLock()
_state = _State()


def init_orca_context(
    cluster_mode: str = "local",
    cores: int | str = 2,
    memory: str = "2g",
    num_nodes: int = 1,
    init_ray_on_spark: bool = False,
    runtime: str = "spark",
    **kwargs: Any,
) -> Any:
    """Start or join what this process runs on, and make it the current engine.

    Returns the SparkContext for the Spark modes, the dict of Ray's addresses for "ray" (or runtime="ray"), and the
    engine itself for "embedded". `cores` and `memory` are per node; for "embedded" `memory` is what shards may take in
    the workers' memory before they are put into files.

    Example:
        sc = init_orca_context(cluster_mode="local", cores=4, memory="4g")
        init_orca_context(cluster_mode="ray", address="10.0.0.1:6379")
    """
    mode = _mode_of(cluster_mode, runtime)
    request = _checked(_Request(mode, cores, memory, num_nodes, kwargs))
    with _lock:
        _check_joinable(mode)
        if _state.owner != os.getpid():
            _state.owner = os.getpid()
            atexit.register(_stop_at_exit)
        started = _START[mode](request)
        _state.mode = mode
        if mode in SPARK_MODES:
            _make_ray_context(started, request, init_ray_on_spark)
        return started


def stop_orca_context() -> None:
    """Stop Ray, Spark, the standalone cluster and the embedded engine, as far as they run; safe to call at any time."""
    with _lock:
        for engine in [*_state.engines.values(), *_state.retired]:
            engine.close()
        _state.mode, _state.engines, _state.retired = None, {}, []
        _stop_ray()
        stop_spark()
        stop_spark_standalone()


def current_engine() -> Engine:
    """The engine of the current context; with none made, that of an active SparkContext, or the embedded one.

    Example:
        current_engine().cores
    """
    with _lock:
        if _state.mode == "ray":
            return _ray_engine()
        if _state.mode != "embedded" and active_spark_context() is not None:
            return engine_of_spark()
        return _embedded_engine()


def engine_of_spark() -> Engine:
    """The engine over the active SparkContext, whoever started it; ContextError when there is none."""
    from zoo.orca.engine.spark import SparkEngine

    with _lock:
        context = OrcaContext.get_spark_context()
        engine: Any = _state.engines.get("spark")
        if engine is None or engine.sc is not context:
            _retire("spark")
            engine = SparkEngine(context)
            _keep("spark", engine)
        return engine


def _mode_of(cluster_mode: str, runtime: str) -> str:
    """The one name of a mode, or an error that says which there are."""
    asked = str(cluster_mode).lower()
    if asked in ("yarn-cluster", "k8s-cluster"):
        command = f"spark-submit --master {asked.partition('-')[0]} --deploy-mode cluster script.py"
        raise InvalidArgumentError(
            f"{asked} starts the driver in the cluster, which only spark-submit can do. Call"
            f' init_orca_context("spark-submit") in the script, and type: {command}'
        )
    if runtime not in ("spark", "ray"):
        raise InvalidArgumentError(f'runtime must be "spark" or "ray", but is {runtime!r}.')
    if asked not in MODES:
        raise InvalidArgumentError(
            f"cluster_mode must be one of {', '.join(MODES)}, but is {cluster_mode!r}."
            ' Type for example: init_orca_context(cluster_mode="local")'
        )
    if runtime == "ray" and asked not in ("local", "ray"):
        raise InvalidArgumentError(f'runtime="ray" goes with cluster_mode "ray" or "local", not with {cluster_mode!r}.')
    return "ray" if runtime == "ray" else MODES[asked]


def _checked(request: _Request) -> _Request:
    if request.cores != "*" or request.mode not in ("local", "embedded"):
        check_count("cores", request.cores)
    check_memory("memory", request.memory)
    check_count("num_nodes", request.num_nodes)
    one_node = request.mode in ("local", "embedded") or (request.mode == "ray" and "address" not in request.options)
    if one_node and request.num_nodes != 1:
        raise PreconditionError(
            f'num_nodes must be 1 with cluster_mode="{request.mode}", which is one machine, but is {request.num_nodes}.'
            ' For several nodes use "standalone", "yarn-client", "k8s-client", or "ray" with address=.'
        )
    known = {"address", "conda_name", *RAY_OPTIONS}
    for function in (init_spark_on_local, init_spark_on_yarn, init_spark_standalone, init_spark_on_k8s):
        known |= inspect.signature(function).parameters.keys()
    for name in request.options.keys() - known:
        logger.warning("init_orca_context does not know the argument %s and ignores it.", name)
    return request


def _check_joinable(mode: str) -> None:
    """Raise ContextError if another kind of context runs already."""
    if _state.mode in SPARK_MODES and active_spark_context() is None:
        _state.mode = None  # the user stopped Spark himself
    running = _state.mode
    active = active_spark_context()
    if running is None and active is not None and mode in SPARK_MODES:
        running = _mode_of_master(active.master)
    if running not in (None, mode) and not (mode == "spark-submit" and running in SPARK_MODES):
        raise ContextError(
            f'A context of mode "{running}" is active, but "{mode}" was asked for. Type: stop_orca_context() first.'
        )


def _mode_of_master(master: str) -> str:
    kinds = {"spark": "standalone", "k8s": "k8s", "yarn": "yarn"}
    return kinds.get(master.partition(":")[0], "local")


def _start_local(request: _Request) -> SparkContext:
    options = request.for_function(init_spark_on_local)
    options["conf"] = {"spark.driver.memory": request.memory} | as_conf(options.get("conf"))
    return init_spark_on_local(**options | {"cores": request.cores})


def _start_submitted(request: _Request) -> SparkContext:
    settings = SparkSettings(master=None, conf=base_conf(request.options.get("conf")))
    level, redirect = request.options.get("spark_log_level", "WARN"), request.options.get("redirect_spark_log", True)
    return start_spark(settings, level, redirect)


def _start_standalone(request: _Request) -> SparkContext:
    return init_spark_standalone(**request.for_function(init_spark_standalone) | _executor_size(request))


def _start_yarn(request: _Request) -> SparkContext:
    conda = {"hadoop_conf": None, "conda_name": os.environ.get("CONDA_DEFAULT_ENV")}
    return init_spark_on_yarn(**conda | request.for_function(init_spark_on_yarn) | _executor_size(request))


def _start_k8s(request: _Request) -> SparkContext:
    cluster = {"master": None, "container_image": None}
    return init_spark_on_k8s(**cluster | request.for_function(init_spark_on_k8s) | _executor_size(request))


def _executor_size(request: _Request) -> dict[str, Any]:
    return {
        "num_executors": request.num_nodes,
        "executor_cores": request.cores,
        "executor_memory": request.memory,
    }


def _start_ray(request: _Request) -> dict[str, Any]:
    from zoo.ray.context import RayContext
    from zoo.ray.utils import resource_to_bytes

    options = request.options
    settings = RaySettings(
        cores=request.cores,
        address=options.get("address"),
        object_store_memory=resource_to_bytes(options.get("object_store_memory")),
        verbose=options.get("verbose", OrcaContext.log_output),
        dashboard=options.get("include_webui", False),
        worker_environment=dict(options.get("env") or {}),
        extra=dict(options.get("extra_params") or {}),
    )
    joining = _state.mode == "ray" and ray_is_running()
    return (RayContext.get(initialize=False) if joining else RayContext.without_spark(settings)).init()


def _start_embedded(request: _Request) -> Engine:
    cores = None if request.cores == "*" else request.cores
    return _embedded_engine(cores, memory_mebibytes(request.memory) << 20)


_START: dict[str, Callable[[_Request], Any]] = {
    "local": _start_local,
    "standalone": _start_standalone,
    "spark-submit": _start_submitted,
    "yarn": _start_yarn,
    "k8s": _start_k8s,
    "ray": _start_ray,
    "embedded": _start_embedded,
}


def _make_ray_context(context: SparkContext, request: _Request, start: bool) -> None:
    from zoo.ray.context import RayContext

    active = RayContext._active_ray_context
    if active is None or active.sc is not context:
        options = {"include_webui": False} | {
            name: request.options[name] for name in RAY_OPTIONS if name in request.options
        }
        active = RayContext(context, **options)
    if start:
        active.init()


def _stop_ray() -> None:
    from zoo.ray.context import RayContext

    context, RayContext._active_ray_context = RayContext._active_ray_context, None
    if context is not None:
        context.stop()
    stop_ray()


def _stop_at_exit() -> None:
    if _state.owner == os.getpid():  # a forked child inherits the state, and must not stop its parent's Spark
        stop_orca_context()


def _keep(name: str, engine: Engine) -> None:
    _state.engines[name] = engine
    if _state.owner != os.getpid():
        _state.owner = os.getpid()
        atexit.register(_stop_at_exit)


def _retire(name: str) -> None:
    """Shards may still lie on an engine that is no longer current, so it is closed only at the end."""
    if name in _state.engines:
        _state.retired.append(_state.engines.pop(name))


def _ray_engine() -> Engine:
    from zoo.orca.engine.ray import RayEngine

    if not ray_is_running():
        raise ContextError("Ray was stopped. Type: stop_orca_context() and init_orca_context(...) again.")
    if "ray" not in _state.engines:
        _keep("ray", RayEngine())
    return _state.engines["ray"]


def _embedded_engine(cores: int | None = None, memory: int | None = None) -> Engine:
    from zoo.orca.engine.local import LocalEngine

    engine = _state.engines.get("embedded")
    if engine is None or (cores is not None and engine.cores != cores):
        _retire("embedded")
        engine = LocalEngine(cores, memory)
        _keep("embedded", engine)
    return engine
