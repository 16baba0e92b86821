"""Feeds: any input becomes this rank's part of every global batch. `as_feed` is the one place that asks what it is."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from zoo.orca.context import current_engine
from zoo.orca.data.shard import XShards
from zoo.orca.data.tf.data import Dataset
from zoo.orca.errors import InvalidArgumentError, PreconditionError
from zoo.orca.feed.base import Feed
from zoo.orca.feed.columns import missing_column
from zoo.orca.feed.creator import CreatorFeed
from zoo.orca.feed.loader import LoaderFeed, is_loader
from zoo.orca.feed.shards import Columns
from zoo.orca.feed.tf_data import feed_of_dataset, is_dataset
from zoo.orca.optional import is_instance_of

if TYPE_CHECKING:
    from zoo.orca.engine.base import Engine

EXPECTED = (
    "numpy arrays (x, y) or {'x': ..., 'y': ...}, a pandas DataFrame, an XShards, a Spark DataFrame, a Ray Dataset, "
    "a torch DataLoader, a tf.data.Dataset, an orca.data.tf.Dataset, or a function creator(config, batch_size) that "
    "returns a DataLoader or a tf.data.Dataset"
)
# What the published interface calls them.
_PUBLISHED = {"XShards": "SparkXShards"}


def kind_of(data: Any) -> str:
    """What the data is, as users call it; asked nowhere else."""
    if isinstance(data, XShards):
        return "XShards"
    if is_instance_of(data, "pyspark.sql", "DataFrame"):
        return "Spark DataFrame"
    if is_instance_of(data, "ray.data", "Dataset"):
        return "Ray Dataset"
    if is_loader(data):
        return "DataLoader"
    if is_dataset(data):
        return "tf.data.Dataset"
    if isinstance(data, Dataset):
        return "orca.data.tf.Dataset"
    if isinstance(data, pd.DataFrame):
        return "pandas DataFrame"
    if isinstance(data, np.ndarray | Mapping | tuple | list):
        return "arrays"
    if inspect.isroutine(data) or (callable(data) and not isinstance(data, type)):
        return "creator"
    raise InvalidArgumentError(f"data must be {EXPECTED}, but is a {type(data).__module__}.{type(data).__qualname__}.")


def engine_of(data: Any, asked: Engine | None = None) -> Engine:
    """Where data is used: where it lies, or on the engine asked for, or on the current one."""
    kind = kind_of(data)
    if kind in ("XShards", "orca.data.tf.Dataset"):
        shards = data if kind == "XShards" else data.xshards
        found: Engine = shards.placement.engine
    elif kind == "Spark DataFrame":
        from zoo.orca.engine.spark import SparkEngine

        found = SparkEngine(data.sparkSession.sparkContext)
    elif kind == "Ray Dataset":
        from zoo.orca.engine.ray import RayEngine

        found = RayEngine()
    else:
        return asked or current_engine()
    if asked is not None and found.name != asked.name:
        raise InvalidArgumentError(
            f"the {kind} lies on the {found.name} engine, but the {asked.name} engine was asked for. "
            'Use backend="torch_distributed", which goes where the data is.'
        )
    return found


def as_feed(
    data: Any,
    columns: Columns = Columns(),  # noqa: B008 - frozen, so sharing it is safe
    config: dict[str, Any] | None = None,
    engine: Engine | None = None,
    what: str = "data",
    text: bool = False,
    auto_shard_files: bool = False,
    session: Any = None,
) -> Feed:
    """A feed of any data that estimators take.

    Args:
        columns: which columns are features, labels and weights, where the data has columns.
        config: what a data creator is called with.
        engine: where to use data that lies nowhere yet; by default what `engine_of` says.
        what: the name of the data in errors.
        text: whether columns and arrays of texts are let in; batches then hold arrays of bytes.
        auto_shard_files: let each worker read files of its own, where a tf.data.Dataset reads enough of them.
        session: where variables and tables that a tf.data.Dataset of a TensorFlow graph uses have their values.
    """
    more = {"auto_shard_files": auto_shard_files, "session": session} if kind_of(data) == "tf.data.Dataset" else {}
    columns = dataclasses.replace(columns, text=text)
    return _MAKERS[kind_of(data)](data, columns, config or {}, engine or engine_of(data), what, **more)


def _of_shards(data: XShards, columns: Columns, config: dict[str, Any], engine: Engine, what: str) -> Feed:
    from zoo.orca.feed.shards import feed_of_shards

    return feed_of_shards(data, columns, what)


def _of_spark_frame(data: Any, columns: Columns, config: dict[str, Any], engine: Engine, what: str) -> Feed:
    from zoo.orca.feed.spark_frame import feed_of_spark_frame

    return feed_of_spark_frame(data, need_columns(columns, data.columns, what), what)


def _of_ray_dataset(data: Any, columns: Columns, config: dict[str, Any], engine: Engine, what: str) -> Feed:
    from zoo.orca.data.convert import ray_dataset_to_placement
    from zoo.orca.feed.shards import feed_of_placement

    chosen = need_columns(columns, data.columns() or [], what)
    return feed_of_placement(ray_dataset_to_placement(data.select_columns(chosen.names)), chosen, what)


def _of_loader(data: Any, columns: Columns, config: dict[str, Any], engine: Engine, what: str) -> Feed:
    return LoaderFeed(data, engine)


def _of_creator(data: Any, columns: Columns, config: dict[str, Any], engine: Engine, what: str) -> Feed:
    return CreatorFeed(data, engine, config, what)


def _of_tf_dataset(
    data: Any,
    columns: Columns,
    config: dict[str, Any],
    engine: Engine,
    what: str,
    auto_shard_files: bool = False,
    session: Any = None,
) -> Feed:
    return feed_of_dataset(data, engine, what, auto_shard_files, session)


def _of_orca_dataset(data: Dataset, columns: Columns, config: dict[str, Any], engine: Engine, what: str) -> Feed:
    from zoo.orca.feed.tf_shards import feed_of_orca_dataset

    return feed_of_orca_dataset(data, what)


def _of_frame(data: pd.DataFrame, columns: Columns, config: dict[str, Any], engine: Engine, what: str) -> Feed:
    from zoo.orca.feed.arrays import feed_of_arrays

    chosen = need_columns(columns, list(data.columns), what)
    return feed_of_arrays(data, chosen, engine, what)


def _of_arrays(data: Any, columns: Columns, config: dict[str, Any], engine: Engine, what: str) -> Feed:
    from zoo.orca.feed.arrays import feed_of_arrays

    return feed_of_arrays(arrays_as_shard(data), columns, engine, what)


def arrays_as_shard(data: Any) -> dict[str, Any]:
    """(x, y) as {"x": x, "y": y}; a dict without "x" and a single array are all features."""
    if isinstance(data, Mapping):
        return dict(data) if "x" in data else {"x": dict(data)}
    if isinstance(data, np.ndarray):
        return {"x": data}
    if len(data) != 2:
        raise InvalidArgumentError(
            f"a tuple of arrays must be (features, labels), but it has {len(data)} items. "
            'Several features go into a list: ([x1, x2], y), or {"x": [x1, x2], "y": y}.'
        )
    return {"x": data[0], "y": data[1]}


def need_columns(columns: Columns, known: list[Any], what: str) -> Columns:
    if not columns.features:
        raise PreconditionError(
            f"feature_cols must be given, because {what} has columns: a list of names among {list(known)}."
        )
    for name in columns.names:
        if name not in known:
            raise missing_column(name, known)
    return columns


_MAKERS: dict[str, Callable[..., Feed]] = {
    "XShards": _of_shards,
    "Spark DataFrame": _of_spark_frame,
    "Ray Dataset": _of_ray_dataset,
    "DataLoader": _of_loader,
    "tf.data.Dataset": _of_tf_dataset,
    "orca.data.tf.Dataset": _of_orca_dataset,
    "creator": _of_creator,
    "pandas DataFrame": _of_frame,
    "arrays": _of_arrays,
}


def check_same_kind(data: Any, validation: Any) -> None:
    """Raise a typed error if validation data is of another kind than the data it goes with."""
    kinds = kind_of(data), kind_of(validation)
    if kinds[0] != kinds[1]:
        raise InvalidArgumentError(
            f"validation_data must be of the same kind as data, but data is {_a(kinds[0])} and validation_data "
            f"{_a(kinds[1])}: train data and validation data should be both {_PUBLISHED.get(kinds[0], kinds[0])}. "
            "Bring one of them into the form of the other."
        )


def _a(kind: str) -> str:
    return kind if kind in ("arrays",) else f"{'an' if kind[0] in 'aeiouX' else 'a'} {kind}"
