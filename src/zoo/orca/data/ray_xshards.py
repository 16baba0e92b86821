"""RayXShards: the partitions of a SparkXShards in Ray's object store, for actors to work on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zoo.orca.data.shard import SparkXShards, XShards
from zoo.orca.engine.base import deal
from zoo.orca.engine.lazy import LazyPlacement
from zoo.orca.engine.ray_session import ray_is_running
from zoo.orca.errors import PreconditionError, ShardTypeError
from zoo.orca.names import public_names
from zoo.orca.optional import require


class RayXShards(XShards):
    """Partitions as Ray objects, each a list of shards.

    Example:
        >>> ray_shards = RayXShards.from_spark_xshards(spark_shards)           # doctest: +SKIP
        >>> ray_shards.transform_shards_with_actors(                           # doctest: +SKIP
        ...     actors, lambda actor, partition: actor.double.remote(partition)).to_spark_xshards()
    """

    def __init__(self, partition_refs: list[Any]):
        from zoo.orca.engine.ray import PlainObject, RayEngine

        stored = [PlainObject(ref) for ref in partition_refs]
        super().__init__(LazyPlacement(RayEngine(), len(stored), lambda: stored), transient=True)
        self.partition_refs = partition_refs

    @staticmethod
    def from_spark_xshards(spark_xshards: SparkXShards) -> RayXShards:
        """Put every partition of a SparkXShards into Ray's object store."""
        _start_ray()
        ray = require("ray", "RayXShards")
        return RayXShards([ray.put(shards) for shards in spark_xshards.placement.fetch()])

    def to_spark_xshards(self) -> XShards:
        """The same partitions in Spark."""
        from zoo.orca.context import OrcaContext
        from zoo.orca.engine.spark import SparkEngine

        return XShards.from_placement(SparkEngine(OrcaContext.get_spark_context()).place(self.collect_partitions()))

    def collect_partitions(self) -> list[list[Any]]:
        """One list of shards a partition."""
        return self.placement.fetch()

    def transform_shard(self, func: Callable[..., Any], *args: Any) -> XShards:
        raise ShardTypeError(
            "RayXShards are transformed by actors: call transform_shards_with_actors(actors, func), "
            "or to_spark_xshards().transform_shard(func)."
        )

    def assign_partitions_to_actors(self, actors: list[Any]) -> tuple[list[list[int]], list[str], list[Any]]:
        """Deal partitions to actors, evenly and near their node: (partition ids by actor, actor ips, actors).

        With fewer partitions than actors only as many actors are used, one partition each.
        """
        ray = require("ray", "RayXShards")
        used = actors[: self.num_partitions()]
        ips = ray.get([actor.get_node_ip.remote() for actor in used])
        locations = ray.experimental.get_object_locations(self.partition_refs) if len(set(ips)) > 1 else {}
        node_ips = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
        homes = [{node_ips[node] for node in locations.get(ref, {}).get("node_ids", [])} for ref in self.partition_refs]
        return _assign(homes, ips), ips, used

    def transform_shards_with_actors(self, actors: list[Any], func: Callable[[Any, Any], Any]) -> RayXShards:
        """New partitions `func(actor, partition_ref)`, which returns a ref to a list of shards."""
        assigned, _, used = self.assign_partitions_to_actors(actors)
        refs: list[Any] = [None] * self.num_partitions()
        for actor, mine in zip(used, assigned, strict=True):
            for part in mine:
                refs[part] = func(actor, self.partition_refs[part])
        return RayXShards(refs)

    def reduce_partitions_for_actors(
        self, actors: list[Any], func: Callable[[Any, list[Any]], Any], return_refs: bool = False
    ) -> list[Any]:
        """One result an actor: `func(actor, its partition refs)` returns a ref."""
        if self.num_partitions() < len(actors):
            raise PreconditionError(
                f"every actor needs a partition, but there are {self.num_partitions()} partitions for {len(actors)} "
                "actors. Repartition the SparkXShards first, or use fewer actors."
            )
        assigned, _, used = self.assign_partitions_to_actors(actors)
        refs = [
            func(actor, [self.partition_refs[part] for part in mine])
            for actor, mine in zip(used, assigned, strict=True)
        ]
        return refs if return_refs else require("ray", "RayXShards").get(refs)

    def zip_reduce_shards_with_actors(
        self,
        xshards: RayXShards,
        actors: list[Any],
        func: Callable[[Any, list[Any], list[Any]], Any],
        return_refs: bool = False,
    ) -> list[Any]:
        """One result an actor: `func(actor, its partition refs, the other's partition refs)` returns a ref."""
        if xshards.num_partitions() != self.num_partitions():
            raise PreconditionError(
                f"both need the same number of partitions, but they have {self.num_partitions()} and "
                f"{xshards.num_partitions()}. Repartition one of the SparkXShards first."
            )
        assigned, _, used = self.assign_partitions_to_actors(actors)
        refs = [
            func(actor, [self.partition_refs[part] for part in mine], [xshards.partition_refs[part] for part in mine])
            for actor, mine in zip(used, assigned, strict=True)
        ]
        return refs if return_refs else require("ray", "RayXShards").get(refs)


def _start_ray() -> None:
    """Start the Ray that belongs to the Spark context, unless one runs already."""
    if not ray_is_running():
        from zoo.orca.context import OrcaContext

        OrcaContext.get_ray_context()


def _assign(homes: list[set[str]], actor_ips: list[str]) -> list[list[int]]:
    """Every actor gets its even share, first of what lies on its own node, then of the rest."""
    shares = [len(mine) for mine in deal(len(homes), len(actor_ips))]
    assigned: list[list[int]] = [[] for _ in actor_ips]
    left = []
    for part, home in enumerate(homes):
        near = [a for a, ip in enumerate(actor_ips) if ip in home and len(assigned[a]) < shares[a]]
        if near:
            assigned[min(near, key=lambda a: len(assigned[a]))].append(part)
        else:
            left.append(part)
    for actor, share in enumerate(shares):
        while len(assigned[actor]) < share:
            assigned[actor].append(left.pop(0))
    return [sorted(mine) for mine in assigned]


__dir__ = public_names(globals())
