"""Starting Spark by kind of cluster, and the names that star imports of this module have always brought along."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import bigdl.util.common as _bigdl
from zoo.orca.engine import spark_settings
from zoo.orca.engine.clusters import (
    init_spark_on_k8s,
    init_spark_on_local,
    init_spark_on_yarn,
    init_spark_standalone,
    stop_spark_standalone,
)
from zoo.orca.engine.session import active_spark_context, start_spark
from zoo.orca.errors import ContextError, InvalidArgumentError
from zoo.orca.names import public_names
from zoo.orca.optional import require
from zoo.orca.options import ZooContext

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext

OPTIMIZER_VERSIONS = ("OptimizerV1", "OptimizerV2")

__all__ = [
    "ZooContext",
    "check_version",
    "getOrCreateSparkContext",
    "get_analytics_zoo_conf",
    "get_optimizer_version",
    "init_env",
    "init_nncontext",
    "init_spark_conf",
    "init_spark_on_k8s",
    "init_spark_on_local",
    "init_spark_on_yarn",
    "init_spark_standalone",
    "load_conf",
    "set_optimizer_version",
    "stop_spark_standalone",
]
__all__ += _bigdl.__all__

_optimizer_version = "OptimizerV1"


def __getattr__(name: str) -> Any:
    if name in _bigdl.__all__:
        return getattr(_bigdl, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def init_nncontext(
    conf: SparkConf | str | None = None, spark_log_level: str = "WARN", redirect_spark_log: bool = True
) -> SparkContext:
    """The active SparkContext, or a new one made from conf (a SparkConf, or the application's name).

    Example:
        sc = init_nncontext("my application")
    """
    if isinstance(conf, str):
        return _start(None, conf, {}, spark_log_level, redirect_spark_log)
    given = dict(conf.getAll()) if conf is not None else {}
    return _start(given.get("spark.master"), given.get("spark.app.name"), given, spark_log_level, redirect_spark_log)


def getOrCreateSparkContext(conf: SparkConf | None = None, appName: str | None = None) -> SparkContext:
    """The active SparkContext, or a new one made from conf."""
    given = dict(conf.getAll()) if conf is not None else {}
    return _start(given.get("spark.master"), appName or given.get("spark.app.name"), given, "WARN", True)


def init_spark_conf(conf: Mapping[str, Any] | None = None) -> SparkConf:
    """A SparkConf with the settings that training on Spark wants, and those of conf.

    Example:
        init_spark_conf({"spark.ui.enabled": "true"}).setMaster("local[2]").setAppName("mine")
    """
    require("pyspark", "A SparkConf")
    from pyspark import SparkConf

    return SparkConf().setAll(list(spark_settings.base_conf(conf).items()))


def set_optimizer_version(optimizerVersion: str, bigdl_type: str = "float") -> None:
    """Choose "OptimizerV1" or "OptimizerV2"; both train the same way here."""
    global _optimizer_version
    if optimizerVersion not in OPTIMIZER_VERSIONS:
        raise InvalidArgumentError(
            f'The optimizer version must be "OptimizerV1" or "OptimizerV2", but is {optimizerVersion!r}.'
        )
    _optimizer_version = optimizerVersion


def get_optimizer_version(bigdl_type: str = "float") -> str:
    """The version that `set_optimizer_version` chose."""
    return _optimizer_version


def check_version() -> None:
    """Raise ContextError if the pyspark package and the Spark that runs are of different releases."""
    pyspark = require("pyspark", "Spark")
    context = active_spark_context()
    if context is not None and context.version.split(".")[:2] != pyspark.__version__.split(".")[:2]:
        raise ContextError(
            f"pyspark is {pyspark.__version__}, but the Spark that runs is {context.version}."
            f" Type: pip install pyspark=={context.version}"
        )


def init_env(conf: SparkConf | Mapping[str, str]) -> None:
    """Put the executor environment of conf (`spark.executorEnv.*`) into this process, where it has none."""
    pairs = conf.items() if isinstance(conf, Mapping) else conf.getAll()
    for key, value in pairs:
        if key.startswith("spark.executorEnv."):
            os.environ.setdefault(key.removeprefix("spark.executorEnv."), value)


def get_analytics_zoo_conf() -> dict[str, str]:
    """The settings that every Spark started here has."""
    return spark_settings.base_conf()


def load_conf(conf_str: str, split_char: str | None = None) -> dict[str, str]:
    """Settings out of text: one a line, key and value parted by white space or split_char; # starts a comment.

    >>> load_conf("spark.speculation false\\n# a comment\\n")
    {'spark.speculation': 'false'}
    """
    lines = (line.strip() for line in conf_str.splitlines())
    pairs = (line.split(split_char, 1) for line in lines if line and not line.startswith("#"))
    return {pair[0].strip(): pair[1].strip() for pair in pairs if len(pair) == 2}


def _start(
    master: str | None, app_name: str | None, conf: Mapping[str, str], log_level: str, redirect_log: bool
) -> SparkContext:
    settings = spark_settings.SparkSettings(master or "local[*]", spark_settings.base_conf(conf), app_name=app_name)
    return start_spark(settings, log_level, redirect_log)


__dir__ = public_names(globals(), _bigdl.__all__)
