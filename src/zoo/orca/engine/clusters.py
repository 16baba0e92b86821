"""Starting a Spark application on each kind of cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from zoo.orca.engine.conda import pack_conda_environment
from zoo.orca.engine.session import active_spark_context, start_spark
from zoo.orca.engine.spark_settings import (
    Executors,
    SparkSettings,
    k8s_settings,
    local_settings,
    standalone_settings,
    yarn_settings,
)
from zoo.orca.engine.standalone import start_standalone, stop_standalone
from zoo.orca.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark import SparkContext


def init_spark_on_local(
    cores: int | str = 2,
    conf: Mapping[str, Any] | None = None,
    python_location: str | None = None,
    spark_log_level: str = "WARN",
    redirect_spark_log: bool = True,
) -> SparkContext:
    """Spark on this machine with so many cores ("*": all of them).

    Example:
        sc = init_spark_on_local(cores=4)
    """
    settings = local_settings(cores, None, conf, python_location)
    return start_spark(settings, spark_log_level, redirect_spark_log)


def init_spark_on_yarn(
    hadoop_conf: str | None,
    conda_name: str | None,
    num_executors: int,
    executor_cores: int,
    executor_memory: str = "2g",
    driver_cores: int = 4,
    driver_memory: str = "2g",
    extra_executor_memory_for_ray: str | None = None,
    extra_python_lib: str | None = None,
    penv_archive: str | None = None,
    additional_archive: str | None = None,
    hadoop_user_name: str = "root",
    spark_yarn_archive: str | None = None,
    spark_log_level: str = "WARN",
    redirect_spark_log: bool = True,
    jars: str | None = None,
    conf: Mapping[str, Any] | None = None,
) -> SparkContext:
    """Spark on YARN in client mode; `penv_archive`, or the conda environment `conda_name`, is shipped to it."""
    executors = Executors(
        num_executors, executor_cores, executor_memory, driver_cores, driver_memory, extra_executor_memory_for_ray
    )
    options: dict[str, Any] = {
        "additional_archive": additional_archive,
        "hadoop_user_name": hadoop_user_name,
        "spark_yarn_archive": spark_yarn_archive,
        "extra_python_lib": extra_python_lib,
        "jars": jars,
        "conf": conf,
    }
    # Checked before packing, which takes minutes.
    settings = yarn_settings(hadoop_conf, executors, penv_archive or "python_env.tar.gz", **options)
    if not penv_archive:
        settings = _with_packed_conda(conda_name, hadoop_conf, executors, options)
    return start_spark(settings, spark_log_level, redirect_spark_log)


def init_spark_standalone(
    num_executors: int,
    executor_cores: int,
    executor_memory: str = "2g",
    driver_cores: int = 4,
    driver_memory: str = "2g",
    master: str | None = None,
    extra_executor_memory_for_ray: str | None = None,
    extra_python_lib: str | None = None,
    spark_log_level: str = "WARN",
    redirect_spark_log: bool = True,
    conf: Mapping[str, Any] | None = None,
    jars: str | None = None,
    python_location: str | None = None,
    enable_numa_binding: bool = False,
) -> SparkContext:
    """Spark on a standalone cluster; with no master given, a cluster on this machine is started first.

    Example:
        sc = init_spark_standalone(num_executors=2, executor_cores=1, executor_memory="1g")
    """
    executors = Executors(
        num_executors, executor_cores, executor_memory, driver_cores, driver_memory, extra_executor_memory_for_ray
    )

    def settings_for(url: str) -> SparkSettings:
        return standalone_settings(url, executors, conf, python_location, extra_python_lib, jars)

    active = active_spark_context()
    if active is not None:
        return active
    if master is not None:
        return start_spark(settings_for(master), spark_log_level, redirect_spark_log)
    return _on_own_cluster(settings_for, executors, enable_numa_binding, spark_log_level, redirect_spark_log)


def stop_spark_standalone() -> None:
    """Stop the standalone cluster that `init_spark_standalone` started, if it did."""
    stop_standalone()


def init_spark_on_k8s(
    master: str | None,
    container_image: str | None,
    num_executors: int,
    executor_cores: int,
    executor_memory: str = "2g",
    driver_memory: str = "1g",
    driver_cores: int = 4,
    extra_executor_memory_for_ray: str | None = None,
    extra_python_lib: str | None = None,
    spark_log_level: str = "WARN",
    redirect_spark_log: bool = True,
    jars: str | None = None,
    conf: Mapping[str, Any] | None = None,
    python_location: str | None = None,
) -> SparkContext:
    """Spark on Kubernetes in client mode, executors in pods of `container_image`."""
    executors = Executors(
        num_executors, executor_cores, executor_memory, driver_cores, driver_memory, extra_executor_memory_for_ray
    )
    settings = k8s_settings(master, container_image, executors, extra_python_lib, jars, conf, python_location)
    return start_spark(settings, spark_log_level, redirect_spark_log)


def _with_packed_conda(
    conda_name: str | None, hadoop_conf: str | None, executors: Executors, options: dict[str, Any]
) -> SparkSettings:
    if not conda_name:
        raise InvalidArgumentError(
            "YARN needs a Python environment to ship: give penv_archive (a packed one) or conda_name (one to pack)."
        )
    archive = pack_conda_environment(conda_name)
    settings = yarn_settings(hadoop_conf, executors, str(archive), **options)
    return dataclasses.replace(settings, scratch=(archive.parent,))


def _on_own_cluster(
    settings_for: Callable[[str], SparkSettings], executors: Executors, numa: bool, log_level: str, redirect_log: bool
) -> SparkContext:
    cluster = start_standalone(
        executors.num_executors,
        executors.executor_cores,
        executors.executor_memory,
        executors.extra_executor_memory_for_ray,
        numa,
    )
    settings = dataclasses.replace(settings_for(cluster.url), secrets=cluster.secrets)
    try:
        return start_spark(settings, log_level, redirect_log)
    except BaseException:
        stop_standalone()
        raise
