"""zoo.common.nncontext and zoo: how Spark is started by name, and what star imports bring."""

from __future__ import annotations

import os
import sys

import pytest

from zoo.common import nncontext
from zoo.orca import stop_orca_context

LEAKED = [
    "np",
    "os",
    "sys",
    "tempfile",
    "six",
    "threading",
    "warnings",
    "multiprocessing",
    "RDD",
    "SparkContext",
    "SparkConf",
    "SparkFiles",
    "DataFrame",
    "SQLContext",
    "get_spark_context",
    "get_node_and_core_number",
    "create_tmp_path",
    "RNG",
    "Sample",
    "JTensor",
    "JavaValue",
    "to_list",
    "INTMAX",
    "INTMIN",
    "DOUBLEMAX",
    "EvaluatedResult",
    "create_spark_conf",
    "init_engine",
    "redire_spark_logs",
    "show_bigdl_info_logs",
]


@pytest.mark.parametrize("module", ["zoo.common.nncontext", "bigdl.util.common", "zoo"])
def test_star_import_brings_the_leaked_names(module):
    names: dict = {}
    exec(f"from {module} import *", names)
    assert [name for name in LEAKED if name not in names] == []
    assert names["np"].__name__ == "numpy"
    assert names["SQLContext"].__name__ == "SQLContext"
    if module != "bigdl.util.common":
        assert names["init_nncontext"] is nncontext.init_nncontext


def test_zoo_re_exports_by_name():
    from zoo import init_nncontext, init_spark_conf, init_spark_on_local

    assert init_nncontext is nncontext.init_nncontext
    assert init_spark_conf is nncontext.init_spark_conf
    assert init_spark_on_local is nncontext.init_spark_on_local
    with pytest.raises(ImportError):
        from zoo import no_such_name  # noqa: F401


class TestSparkConf:
    def test_settings(self, monkeypatch):
        for name in ("ZOO_NUM_MKLTHREADS", "OMP_NUM_THREADS"):
            monkeypatch.delenv(name, raising=False)
        conf = nncontext.init_spark_conf({"spark.extra": "yes"})
        assert conf.get("spark.shuffle.reduceLocality.enabled") == "false"
        assert conf.get("spark.serializer") == "org.apache.spark.serializer.JavaSerializer"
        assert conf.get("spark.shuffle.blockTransferService") == "nio"
        assert conf.get("spark.scheduler.minRegisteredResourcesRatio") == "1.0"
        assert conf.get("spark.scheduler.maxRegisteredResourcesWaitingTime") == "3600s"
        assert conf.get("spark.speculation") == "false"
        assert conf.get("spark.extra") == "yes"
        for name in ("KMP_AFFINITY", "KMP_SETTINGS", "KMP_BLOCKTIME"):
            assert conf.get(f"spark.executorEnv.{name}") is not None
        assert conf.get("spark.executorEnv.OMP_NUM_THREADS") == "1"

    @pytest.mark.parametrize(
        ("variables", "threads"),
        [
            ({"OMP_NUM_THREADS": "3"}, "3"),
            ({"ZOO_NUM_MKLTHREADS": "5", "OMP_NUM_THREADS": "3"}, "5"),
            ({"ZOO_NUM_MKLTHREADS": "all"}, str(os.cpu_count())),
        ],
    )
    def test_threads(self, monkeypatch, variables, threads):
        for name in ("ZOO_NUM_MKLTHREADS", "OMP_NUM_THREADS"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert nncontext.init_spark_conf().get("spark.executorEnv.OMP_NUM_THREADS") == threads

    def test_load_conf(self):
        text = "# a comment\nspark.a  one\n\nspark.b two words\n"
        assert nncontext.load_conf(text) == {"spark.a": "one", "spark.b": "two words"}
        assert nncontext.load_conf("a=1\nb = 2", "=") == {"a": "1", "b": "2"}
        assert nncontext.get_analytics_zoo_conf()["spark.speculation"] == "false"

    def test_init_env(self, monkeypatch):
        monkeypatch.setenv("FIRST", "mine")
        monkeypatch.setenv("SECOND", "")
        monkeypatch.delenv("SECOND")
        nncontext.init_env({"spark.executorEnv.FIRST": "theirs", "spark.executorEnv.SECOND": "2", "spark.a": "b"})
        assert (os.environ["FIRST"], os.environ["SECOND"]) == ("mine", "2")
        monkeypatch.delenv("SECOND")


def test_optimizer_version():
    assert nncontext.get_optimizer_version() == "OptimizerV1"
    nncontext.set_optimizer_version("OptimizerV2")
    assert nncontext.get_optimizer_version() == "OptimizerV2"
    nncontext.set_optimizer_version("OptimizerV1")
    with pytest.raises(ValueError, match="OptimizerV3"):
        nncontext.set_optimizer_version("OptimizerV3")


def test_zoo_context_takes_only_bools():
    with pytest.raises(AssertionError, match="log_output must be True or False"):
        nncontext.ZooContext.log_output = "yes"
    with pytest.raises(AssertionError, match="barrier_mode must be True or False"):
        nncontext.ZooContext.barrier_mode = 1
    assert nncontext.ZooContext.barrier_mode is True


def test_init_nncontext_honours_a_conf_and_joins(in_folder, capfd):
    conf = nncontext.init_spark_conf().setMaster("local[1]").setAppName("testNNClassifer")
    sc = nncontext.init_nncontext(conf, spark_log_level="WARN", redirect_spark_log=False)
    try:
        assert (sc.appName, sc.master) == ("testNNClassifer", "local[1]")
        assert sc.getConf().get("spark.serializer") == "org.apache.spark.serializer.JavaSerializer"
        assert nncontext.init_nncontext("another name") is sc
        assert nncontext.init_spark_on_local(cores=4) is sc
        assert nncontext.getOrCreateSparkContext() is sc
        assert nncontext.get_spark_context() is sc
        assert nncontext.get_node_and_core_number() == (1, 1)
        nncontext.check_version()
        with pytest.warns(UserWarning, match="log_output is read when a context is made"):
            nncontext.ZooContext.log_output = False
        threads = sc.parallelize([0], 1).map(lambda _: (os.environ["OMP_NUM_THREADS"], sys.executable)).collect()
        assert threads == [(os.environ.get("OMP_NUM_THREADS", "1"), sys.executable)]
    finally:
        stop_orca_context()
    assert "WARN NativeCodeLoader" in capfd.readouterr().err  # not redirected, so it is seen
    assert list(in_folder.iterdir()) == []
