"""Process-wide options, as class attributes that are checked when set."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Any

from zoo.orca.engine import bar
from zoo.orca.engine.session import active_spark_context
from zoo.orca.errors import ContextError, PreconditionError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession, SQLContext

    from zoo.ray import RayContext

READ_BACKENDS = ("spark", "pandas")


def _check_bool(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise PreconditionError(f"{name} must be True or False, but is {value!r}.")
    return value


class ZooOptions(type):
    """The attributes of ZooContext, shared by every class that has them."""

    _log_output = False
    _barrier_mode = True

    @property
    def log_output(cls) -> bool:
        """Whether the output of workers is shown on the driver."""
        return ZooOptions._log_output

    @log_output.setter
    def log_output(cls, value: bool) -> None:
        if active_spark_context() is not None:
            warnings.warn(
                "log_output is read when a context is made: stop_orca_context(), set it, and init again.", stacklevel=2
            )
        ZooOptions._log_output = _check_bool("log_output", value)

    @property
    def barrier_mode(cls) -> bool:
        """Whether Ray's nodes on a Spark cluster are started in one barrier stage."""
        return ZooOptions._barrier_mode

    @barrier_mode.setter
    def barrier_mode(cls, value: bool) -> None:
        ZooOptions._barrier_mode = _check_bool("barrier_mode", value)


class OrcaOptions(ZooOptions):
    """The attributes of OrcaContext."""

    _values: dict[str, Any] = {
        "pandas_read_backend": "spark",
        "train_data_store": "DRAM",
        "serialize_data_creator": False,
        "eager_mode": True,
        "shard_size": None,
    }

    @property
    def pandas_read_backend(cls) -> str:
        """What reads files into pandas shards: "spark" or "pandas"."""
        return cls._values["pandas_read_backend"]

    @pandas_read_backend.setter
    def pandas_read_backend(cls, value: str) -> None:
        if not isinstance(value, str) or value.lower() not in READ_BACKENDS:
            raise PreconditionError(f'pandas_read_backend must be "spark" or "pandas", but is {value!r}.')
        cls._values["pandas_read_backend"] = value.lower()

    @property
    def train_data_store(cls) -> str:
        """Where training data is kept: "DRAM", "PMEM", or "DISK_n" for one n-th in memory at a time."""
        return cls._values["train_data_store"]

    @train_data_store.setter
    def train_data_store(cls, value: str) -> None:
        if not isinstance(value, str) or not re.fullmatch(r"DRAM|PMEM|DISK_[1-9]\d*", value.upper()):
            raise PreconditionError(
                f'train_data_store must be "DRAM", "PMEM" or "DISK_n" (n from 1), but is {value!r}.'
            )
        cls._values["train_data_store"] = value.upper()

    @property
    def serialize_data_creator(cls) -> bool:
        """Whether the data creators of one machine run one after the other, behind a file lock."""
        return cls._values["serialize_data_creator"]

    @serialize_data_creator.setter
    def serialize_data_creator(cls, value: bool) -> None:
        cls._values["serialize_data_creator"] = _check_bool("serialize_data_creator", value)

    @property
    def progress_bars(cls) -> bool | None:
        """Whether progress bars are shown: True, False, or None for on terminals and in notebooks."""
        return bar.chosen()

    @progress_bars.setter
    def progress_bars(cls, value: bool | None) -> None:
        bar.choose(value)

    @property
    def _eager_mode(cls) -> bool:
        return cls._values["eager_mode"]

    @_eager_mode.setter
    def _eager_mode(cls, value: bool) -> None:
        cls._values["eager_mode"] = _check_bool("_eager_mode", value)

    @property
    def _shard_size(cls) -> int | None:
        return cls._values["shard_size"]

    @_shard_size.setter
    def _shard_size(cls, value: int | None) -> None:
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise PreconditionError(f"_shard_size must be None or a whole number of at least 1, but is {value!r}.")
        cls._values["shard_size"] = value


class ZooContext(metaclass=ZooOptions):
    """Options of the older interface: `ZooContext.log_output`, `ZooContext.barrier_mode`."""


class OrcaContext(metaclass=OrcaOptions):
    """Options of Orca, and the contexts that are active.

    Example:
        OrcaContext.pandas_read_backend = "pandas"
        OrcaContext.get_spark_session().range(3).show()
    """

    @staticmethod
    def get_spark_context() -> SparkContext:
        """The active SparkContext; ContextError when there is none."""
        context = active_spark_context()
        if context is None:
            raise ContextError('No SparkContext is active. Type: init_orca_context(cluster_mode="local")')
        return context

    @staticmethod
    def get_spark_session() -> SparkSession:
        """The SparkSession of the active SparkContext."""
        OrcaContext.get_spark_context()
        from pyspark.sql import SparkSession

        return SparkSession.builder.getOrCreate()

    @staticmethod
    def get_sql_context() -> SQLContext:
        """The SQLContext of the active SparkContext."""
        session = OrcaContext.get_spark_session()
        from pyspark.sql import SQLContext

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # asked for by name, so no need to say that it is old
            return SQLContext(session.sparkContext, session)

    @staticmethod
    def get_ray_context() -> RayContext:
        """The active RayContext, started if need be; ContextError when there is none."""
        from zoo.ray import RayContext

        return RayContext.get()
