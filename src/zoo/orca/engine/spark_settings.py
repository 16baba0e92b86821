"""What spark-submit would be given: master, configuration and environment, for each kind of cluster.

Everything here is arithmetic over arguments; nothing is started and pyspark is not needed. No YARN or Kubernetes
cluster was at hand, so for these two the configuration is tested and the submission is not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoo.orca.errors import InvalidArgumentError, PreconditionError

LOOPBACK = "127.0.0.1"
#: What starts Python workers, and the variable that names the modules which they find imported.
DAEMON = "zoo.orca.engine.spark_daemon"
IMPORTS = "ORCA_IMPORTS"
PYTHON_ENVIRONMENT = "python_env"

_MEMORY = re.compile(r"(\d+)([kmgt])b?", re.IGNORECASE)
_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


@dataclass(frozen=True)
class SparkSettings:
    """How to start one Spark application."""

    master: str | None
    conf: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)  # settings that no command line may show
    python: str | None = None
    app_name: str | None = None
    scratch: tuple[Path, ...] = ()  # folders to remove when the application ends


@dataclass(frozen=True)
class Executors:
    """The size of the executors and the driver of a cluster application."""

    num_executors: int
    executor_cores: int
    executor_memory: str = "2g"
    driver_cores: int = 4
    driver_memory: str = "2g"
    extra_executor_memory_for_ray: str | None = None

    def __post_init__(self) -> None:
        for name in ("num_executors", "executor_cores", "driver_cores"):
            check_count(name, getattr(self, name))
        for name in ("executor_memory", "driver_memory", "extra_executor_memory_for_ray"):
            if getattr(self, name) is not None or name != "extra_executor_memory_for_ray":
                check_memory(name, getattr(self, name))

    def conf(self) -> dict[str, str]:
        sizes = {
            "spark.driver.cores": str(self.driver_cores),
            "spark.driver.memory": self.driver_memory,
            "spark.executor.instances": str(self.num_executors),
            "spark.executor.cores": str(self.executor_cores),
            "spark.executor.memory": self.executor_memory,
            "spark.cores.max": str(self.num_executors * self.executor_cores),
        }
        if self.extra_executor_memory_for_ray is not None:
            sizes["spark.executor.memoryOverhead"] = self.extra_executor_memory_for_ray
        return sizes


def check_count(name: str, value: object) -> int:
    """A positive whole number, or an error that names the argument."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidArgumentError(f"{name} must be a whole number of at least 1, but is {value!r}.")
    return value


def check_memory(name: str, value: object) -> str:
    """A memory size as Spark writes it, or an error that names the argument."""
    if not isinstance(value, str) or not _MEMORY.fullmatch(value):
        raise InvalidArgumentError(f'{name} must be a size such as "2g" or "512m", but is {value!r}.')
    return value


def memory_mebibytes(value: str) -> int:
    """The size in MiB of a checked memory string, as Spark counts it.

    >>> memory_mebibytes("2g")
    2048
    """
    found = _MEMORY.fullmatch(value)
    if found is None:
        raise InvalidArgumentError(f'A memory size such as "2g" or "512m" was expected, but {value!r} came.')
    return int(found.group(1)) * _UNITS[found.group(2).lower()] // 2**20


def base_conf(conf: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Settings that every Spark started here has, overridden by `conf`."""
    settings = {
        "spark.shuffle.reduceLocality.enabled": "false",
        "spark.shuffle.blockTransferService": "nio",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "3600s",
        "spark.speculation": "false",
        "spark.serializer": "org.apache.spark.serializer.JavaSerializer",
        # No pinning: with one thread a worker, "compact" would put every worker of a node on the same core.
        "spark.executorEnv.KMP_AFFINITY": "granularity=fine,none",
        "spark.executorEnv.KMP_SETTINGS": "0",
        "spark.executorEnv.KMP_BLOCKTIME": "0",
        "spark.executorEnv.OMP_NUM_THREADS": _omp_threads(os.environ if environment is None else environment),
    }
    return settings | as_conf(conf)


def as_conf(conf: Mapping[str, Any] | None) -> dict[str, str]:
    """A user's settings as the strings that Spark takes."""
    if conf is not None and not isinstance(conf, Mapping):
        raise InvalidArgumentError(
            f'conf must be a dict such as {{"spark.ui.enabled": "true"}}, but is a {type(conf).__name__}.'
        )
    return {
        str(key): str(value).lower() if isinstance(value, bool) else str(value) for key, value in (conf or {}).items()
    }


def local_settings(
    cores: int | str, memory: str | None, conf: Mapping[str, Any] | None, python: str | None
) -> SparkSettings:
    """Spark in one JVM on this machine."""
    if cores != "*":
        check_count("cores", cores)
    sizes = {} if memory is None else {"spark.driver.memory": check_memory("memory", memory)}
    return SparkSettings(f"local[{cores}]", base_conf(sizes) | as_conf(conf), python=python)


def standalone_settings(
    master: str,
    executors: Executors,
    conf: Mapping[str, Any] | None = None,
    python: str | None = None,
    extra_python_lib: str | None = None,
    jars: str | None = None,
) -> SparkSettings:
    """An application on a standalone cluster, the driver here."""
    if not master.startswith("spark://"):
        raise PreconditionError(f'master of a standalone cluster must be like "spark://host:7077", but is {master!r}.')
    shipped = base_conf(executors.conf() | _shipped(extra_python_lib, jars))
    return SparkSettings(master, shipped | as_conf(conf), python=python)


def yarn_settings(
    hadoop_conf: str | None,
    executors: Executors,
    penv_archive: str,
    additional_archive: str | None = None,
    hadoop_user_name: str = "root",
    spark_yarn_archive: str | None = None,
    extra_python_lib: str | None = None,
    jars: str | None = None,
    conf: Mapping[str, Any] | None = None,
) -> SparkSettings:
    """An application on YARN in client mode: the packed Python environment travels to every container."""
    folder = hadoop_conf or os.environ.get("HADOOP_CONF_DIR")
    if not folder:
        raise PreconditionError(
            "YARN needs the folder of Hadoop's configuration, but HADOOP_CONF_DIR is not set and hadoop_conf not given."
            ' Type: init_orca_context("yarn-client", hadoop_conf="/path/to/hadoop/conf", ...)'
        )
    archives = [f"{penv_archive}#{PYTHON_ENVIRONMENT}", *([additional_archive] if additional_archive else [])]
    python = f"{PYTHON_ENVIRONMENT}/bin/python"
    shipped = executors.conf() | _shipped(extra_python_lib, jars)
    del shipped["spark.cores.max"]  # of standalone clusters only
    shipped |= {
        "spark.submit.deployMode": "client",
        "spark.yarn.dist.archives": ",".join(archives),
        "spark.yarn.appMasterEnv.PYSPARK_PYTHON": python,
        "spark.executorEnv.PYSPARK_PYTHON": python,
        "spark.pyspark.python": python,
    }
    if spark_yarn_archive:
        shipped["spark.yarn.archive"] = spark_yarn_archive
    environment = {"HADOOP_CONF_DIR": folder, "YARN_CONF_DIR": folder, "HADOOP_USER_NAME": hadoop_user_name}
    return SparkSettings("yarn", base_conf(shipped) | as_conf(conf), environment, python=python)


def k8s_settings(
    master: str | None,
    container_image: str | None,
    executors: Executors,
    extra_python_lib: str | None = None,
    jars: str | None = None,
    conf: Mapping[str, Any] | None = None,
    python: str | None = None,
) -> SparkSettings:
    """An application on Kubernetes in client mode: executors are pods of `container_image`."""
    if not master or not container_image:
        raise PreconditionError(
            f"Kubernetes needs master and container_image, but they are {master!r} and {container_image!r}."
            ' Type: init_orca_context("k8s-client", master="k8s://https://host:6443", container_image="image:tag", ...)'
        )
    shipped = executors.conf() | _shipped(extra_python_lib, jars)
    del shipped["spark.cores.max"]
    shipped |= {
        "spark.submit.deployMode": "client",
        "spark.kubernetes.container.image": container_image,
        "spark.kubernetes.pyspark.pythonVersion": "3",
    }
    # Pods have the interpreter of their image, not the driver's path.
    pod_python = python or "python3"
    shipped |= {"spark.executorEnv.PYSPARK_PYTHON": pod_python, "spark.pyspark.python": pod_python}
    url = master if master.startswith("k8s://") else f"k8s://{master}"
    return SparkSettings(url, base_conf(shipped) | as_conf(conf), python=pod_python)


def _shipped(extra_python_lib: str | None, jars: str | None) -> dict[str, str]:
    shipped = {"spark.submit.pyFiles": extra_python_lib, "spark.jars": jars}
    return {key: value for key, value in shipped.items() if value}


def _omp_threads(environment: Mapping[str, str]) -> str:
    asked = environment.get("ZOO_NUM_MKLTHREADS")
    if asked is not None:
        return str(os.cpu_count() or 1) if asked.lower() == "all" else asked
    return environment.get("OMP_NUM_THREADS", "1")
