"""What the estimators of TensorFlow 1 ask of their arguments, in the words that existing code looks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.orca.context import OrcaContext
from zoo.orca.errors import InvalidArgumentError, PreconditionError
from zoo.orca.feed import kind_of
from zoo.orca.feed.shards import Columns
from zoo.orca.learn.optimizers import Optimizer
from zoo.orca.learn.trigger import EveryEpoch, Trigger

WITH_COLUMNS = ("Spark DataFrame", "pandas DataFrame", "Ray Dataset")


def need_columns(data: Any, columns: Columns, doing: str, needs_labels: bool = True) -> None:
    """Raise a typed error if data has columns and nobody said which; `doing` is "training" or the like."""
    if kind_of(data) not in WITH_COLUMNS and not (columns.features or columns.labels or _is_of_frames(data)):
        return
    for what, found, needed in (("feature", columns.features, True), ("label", columns.labels, needs_labels)):
        if needed and not found:
            raise PreconditionError(
                f"{what} columns is None; it should not be None in {doing}. The data has columns: say which are the "
                f'{what}s, as {what}_cols=["name", ...].'
            )


def _is_of_frames(data: Any) -> bool:
    return kind_of(data) == "XShards" and data._get_class_name() == "pandas.core.frame.DataFrame"


def need_records(feed: Any, what: str) -> None:
    """Raise a typed error for a tf.data.Dataset whose elements are not single records, each once."""
    if getattr(feed, "batched", None):
        raise PreconditionError(
            f"{what} must be a tf.data.Dataset of single records, but its elements are batches. Leave out .batch(...), "
            "and say batch_size=... here: batches are made over all workers. For one that cannot be made anew: "
            ".unbatch()."
        )
    if getattr(feed, "infinite", None):
        raise PreconditionError(
            f"{what} must be a tf.data.Dataset that ends, but it repeats its records for ever. Leave out .repeat(), "
            "and say epochs=... here."
        )


def check_backend(backend: Any) -> None:
    if backend != "bigdl":
        raise PreconditionError(f'backend must be "bigdl" for estimators of zoo.orca.learn.tf, but is {backend!r}.')


def is_orca(optimizer: Any) -> bool:
    """Whether it is an orca optimizer, or a dict of them by the prefix of variables' names."""
    return isinstance(optimizer, Optimizer | Mapping)


def check_disk_trigger(trigger: Any) -> None:
    """With training data on disk, a slice at a time, the published interface takes some triggers alone."""
    if not OrcaContext.train_data_store.startswith("DISK"):
        return
    converted = Trigger.convert_trigger(trigger)
    if converted is None or isinstance(converted, EveryEpoch) or getattr(converted, "slice_aware", False):
        return
    raise InvalidArgumentError(
        "Please use a trigger defined in zoo.util.triggers, or EveryEpoch(), as checkpoint_trigger when "
        f"OrcaContext.train_data_store is {OrcaContext.train_data_store!r}, but it is {trigger!r}. Type "
        "from zoo.util.triggers import SeveralIteration."
    )
