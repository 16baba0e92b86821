"""RayContext: Ray on the machine of a local Spark, or on the executors of a Spark cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.orca.engine import ray_session
from zoo.orca.engine.ray_on_spark import RayOnSpark
from zoo.orca.engine.ray_session import RaySettings
from zoo.orca.engine.spark_settings import check_count
from zoo.orca.errors import ContextError, PreconditionError
from zoo.ray.utils import is_local, local_cores, resource_to_bytes

if TYPE_CHECKING:
    from pyspark import SparkContext


@dataclass
class ProcessInfo:
    """The Ray processes of one node."""

    node_ip: str | None
    pids: list[int]


@dataclass
class ProcessMonitor:
    """Which Ray processes this context started on the driver's machine."""

    process_infos: list[ProcessInfo] = field(default_factory=list)


class RayContext:
    """Ray over the machines of a SparkContext; the newest one is the active one.

    `redis_port` and `redis_password` are accepted and unused: Ray has no Redis any more.

    Example:
        ray_ctx = RayContext(sc, object_store_memory="1g")
        ray_ctx.init()
        ray_ctx.stop()
    """

    _active_ray_context: ClassVar[RayContext | None] = None

    def __init__(
        self,
        sc: SparkContext | None,
        redis_port: int | None = None,
        redis_password: str | None = None,
        object_store_memory: str | None = None,
        verbose: bool = False,
        env: Mapping[str, str] | None = None,
        extra_params: Mapping[str, Any] | None = None,
        include_webui: bool = True,
        num_ray_nodes: int | None = None,
        ray_node_cpu_cores: int | None = None,
    ):
        if sc is None:
            raise PreconditionError(
                "RayContext needs a SparkContext, but sc is None. Type: sc = init_orca_context() first, or"
                ' init_orca_context(cluster_mode="ray") for Ray alone.'
            )
        self.sc: SparkContext | None = sc
        self.is_local = is_local(sc)
        self.num_ray_nodes = _nodes(sc) if num_ray_nodes is None else check_count("num_ray_nodes", num_ray_nodes)
        if ray_node_cpu_cores is None:
            ray_node_cpu_cores = (
                local_cores(sc) if self.is_local else int(sc.getConf().get("spark.executor.cores", "1"))
            )
        self.ray_node_cpu_cores = check_count("ray_node_cpu_cores", ray_node_cpu_cores)
        self._take(
            RaySettings(
                cores=self.ray_node_cpu_cores,
                object_store_memory=resource_to_bytes(object_store_memory),
                verbose=verbose,
                # The dashboard is an extra of Ray (pip install "ray[default]"), found by a package of its own.
                dashboard=include_webui and find_spec("aiohttp_cors") is not None,
                worker_environment=_checked_env(env),
                extra=dict(extra_params or {}),
            )
        )

    def __repr__(self) -> str:
        state = "runs" if self.initialized else "not started"
        return f"RayContext({self.num_ray_nodes} nodes of {self.ray_node_cpu_cores} cores, {state})"

    @classmethod
    def without_spark(cls, settings: RaySettings) -> RayContext:
        """A context for Ray alone, on this machine or at an address."""
        context = cls.__new__(cls)
        context.sc = None
        context.is_local = settings.address is None
        context.num_ray_nodes = 1
        context.ray_node_cpu_cores = settings.cores or 0
        context._take(settings)
        return context

    @classmethod
    def get(cls, initialize: bool = True) -> RayContext:
        """The active context, started if need be; ContextError when there is none."""
        context = RayContext._active_ray_context
        if context is None:
            raise ContextError("No RayContext is active. Type: init_orca_context(init_ray_on_spark=True)")
        if initialize and not context.initialized:
            context.init()
        return context

    @property
    def total_cores(self) -> int:
        return self.num_ray_nodes * self.ray_node_cpu_cores

    @property
    def redis_address(self) -> str | None:
        """Where other drivers join; the name is from the days when that was a Redis."""
        return (self.address_info or {}).get("address")

    def init(self, driver_cores: int = 0) -> dict[str, Any]:
        """Start Ray, or join what runs already, and return its addresses; a second call returns the same."""
        if self.address_info is None or not self.initialized:
            if self.sc is None or self.is_local:
                self.address_info = ray_session.start_ray(self._settings)
            else:
                self._on_spark = RayOnSpark(self.sc, self._settings, self.num_ray_nodes, driver_cores)
                self.address_info = self._on_spark.start()
            self.initialized = True
            node = self.address_info.get("node_ip_address")
            self.ray_processesMonitor.process_infos = [ProcessInfo(node, ray_session.ray_pids())]
        return self.address_info

    def stop(self) -> None:
        """Stop Ray; a new RayContext can then be made over the same SparkContext."""
        if not self.initialized:
            return
        ray_session.stop_ray()
        if self._on_spark is not None:
            self._on_spark.stop()
            self._on_spark = None
        self.initialized = False
        self.address_info = None

    def purge(self) -> None:
        """Stop Ray; none of its processes stay, so there is nothing more to clear away."""
        self.stop()

    def _take(self, settings: RaySettings) -> None:
        self._settings = settings
        self._on_spark: RayOnSpark | None = None
        self.initialized = False
        self.address_info: dict[str, Any] | None = None
        self.ray_processesMonitor = ProcessMonitor()
        RayContext._active_ray_context = self


def _nodes(sc: SparkContext) -> int:
    return 1 if is_local(sc) else int(sc.getConf().get("spark.executor.instances", "1"))


def _checked_env(env: Mapping[str, str] | None) -> dict[str, str]:
    if env is not None and not isinstance(env, Mapping):
        raise PreconditionError(f'env must be a dict such as {{"NAME": "value"}}, but is a {type(env).__name__}.')
    return {str(name): str(value) for name, value in (env or {}).items()}
