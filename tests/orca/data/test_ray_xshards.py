"""RayXShards: actors work on the partitions of a SparkXShards, Ray beside Spark in one driver."""

from __future__ import annotations

import numpy as np
import pytest

from zoo.orca import init_orca_context, stop_orca_context
from zoo.orca.data import SparkXShards, XShards
from zoo.orca.data.ray_xshards import RayXShards
from zoo.orca.errors import PreconditionError, ShardTypeError


@pytest.fixture
def ray_beside_spark():
    init_orca_context("local", cores=2, init_ray_on_spark=True)
    yield
    stop_orca_context()


def make_actors(count):
    import ray

    @ray.remote(num_cpus=0)
    class Doubler:
        def get_node_ip(self):
            return ray.util.get_node_ip_address()

        def double(self, partition):
            return [shard * 2 for shard in partition]

        def total(self, *partitions):
            return sum(int(shard.sum()) for partition in partitions for shard in partition)

    return [Doubler.remote() for _ in range(count)]


def test_actors_work_on_partitions(ray_beside_spark):
    import ray

    spark_shards = XShards.partition(np.arange(6), 3)
    shards = RayXShards.from_spark_xshards(spark_shards)
    assert shards.num_partitions() == 3
    assert [shard.tolist() for shard in shards.collect()] == [[0, 1], [2, 3], [4, 5]]
    assert [[shard.tolist() for shard in part] for part in shards.collect_partitions()] == [
        [[0, 1]],
        [[2, 3]],
        [[4, 5]],
    ]
    actors = make_actors(2)
    parts, ips, used = shards.assign_partitions_to_actors(actors)
    assert [sorted(part) for part in parts] == [[0, 1], [2]]
    assert (len(ips), used) == (2, actors)
    doubled = shards.transform_shards_with_actors(actors, lambda actor, part: actor.double.remote(part))
    back = doubled.to_spark_xshards()
    assert isinstance(back, SparkXShards)
    assert np.concatenate(back.collect()).tolist() == [0, 2, 4, 6, 8, 10]
    totals = shards.reduce_partitions_for_actors(actors, lambda actor, parts: actor.total.remote(*parts))
    assert totals == [6, 9]
    refs = shards.zip_reduce_shards_with_actors(
        doubled, actors, lambda actor, mine, theirs: actor.total.remote(*mine, *theirs), return_refs=True
    )
    assert ray.get(refs) == [18, 27]
    assert len(shards.assign_partitions_to_actors(make_actors(5))[2]) == 3
    with pytest.raises(PreconditionError, match="3 partitions for 5 actors"):
        shards.reduce_partitions_for_actors(make_actors(5), lambda actor, parts: None)
    with pytest.raises(ShardTypeError, match="transform_shards_with_actors"):
        shards.transform_shard(len)
