"""Writes the classes of a Spark session into a file that later JVMs map: the tests start Spark some fifty times.

Run by `make test`, once. A JVM that cannot use the file (another Java, other jars) starts without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark.jsa"
# For JVMs that live for seconds: compile quickly, collect garbage in one thread.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
GARBAGE_COLLECTOR = "-XX:+UseSerialGC"  # the archive fits only JVMs that have the same


def set_java_options() -> None:
    """Make every Spark that this process and those below it start quick, unless the user has settings of his own."""
    archive = f" -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable" if ARCHIVE.exists() else ""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIVED + archive)
    for name in ("SPARK_LAUNCHER_OPTS", "SPARK_MASTER_OPTS", "SPARK_WORKER_OPTS"):
        os.environ.setdefault(name, SHORT_LIVED)


def write_archive() -> None:
    from zoo.orca.engine.java import find_java

    with tempfile.TemporaryDirectory() as folder:
        classes, archive = Path(folder, "classes"), Path(folder, "archive")
        os.environ["SPARK_SUBMIT_OPTS"] = f"{SHORT_LIVED} -XX:DumpLoadedClassList={classes}"
        class_path = _use_spark(folder)
        options = [f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"]
        dump = [find_java(), GARBAGE_COLLECTOR, "-Xshare:dump", *options, "-cp", class_path]
        done = subprocess.run(dump, capture_output=True, check=False)
        # Tests run without it, too. Moved at the end: half an archive is none.
        if done.returncode == 0:
            subprocess.run(["mv", archive, ARCHIVE], check=True)


def _use_spark(folder: str) -> str:
    """Do what tests do, so that the classes for it are loaded; the JVM's class path."""
    from pyspark.sql import SparkSession

    from zoo.orca import init_orca_context, stop_orca_context

    spark = SparkSession(init_orca_context("local", cores=2))
    frame = spark.range(100).selectExpr("id", "id % 7 as key", "array(id, 2 * id) as list")
    frame.write.parquet(f"{folder}/frame")
    frame = spark.read.parquet(f"{folder}/frame")
    frame.groupBy("key").count().toPandas()
    frame.mapInArrow(lambda batches: batches, frame.schema).count()
    spark.sparkContext.parallelize(range(4), 2).barrier().mapPartitions(lambda rows: rows).collect()
    class_path = spark._jvm.java.lang.System.getProperty("java.class.path")
    stop_orca_context()
    return class_path


if __name__ == "__main__":
    write_archive()
