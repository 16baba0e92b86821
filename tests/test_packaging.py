"""What is handed out: the wheel and the source package, and what a user sees who installed no extra."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.parser import HeaderParser
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from zoo.orca.optional import EXTRA_OF, INSTALL_LINES, PINNED
from zoo.orca.version import __version__

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PARTS = ("src", "pyproject.toml", "README.md", "LICENSE", "NOTICE", "MANIFEST.in")

# Imports each (module, name) of its argument, and tells what a user would read.
OPEN_DOORS = """
import importlib, json, sys
told = {}
for module, name in json.loads(sys.argv[1]):
    try:
        getattr(importlib.import_module(module), name) if name else importlib.import_module(module)
    except Exception as error:
        told[f"{module} {name or ''}".strip()] = f"{type(error).__name__}: {error}"
frameworks = [name for name in sys.argv[2:] if name in sys.modules]
print(json.dumps({"told": told, "frameworks": frameworks}))
"""
# As a user with a type checker would write it; every call has a type, and none of them is Any.
TYPED_SCRIPT = """
import numpy as np

from bigdl.optim.optimizer import Adam, MaxEpoch
from zoo.common.nncontext import init_nncontext
from zoo.orca import OrcaContext, init_orca_context, stop_orca_context
from zoo.orca.data import XShards
from zoo.orca.data.pandas import read_csv
from zoo.orca.learn.metrics import Accuracy
from zoo.orca.learn.openvino import Estimator as OpenVINOEstimator
from zoo.orca.learn.pytorch import Estimator
from zoo.orca.learn.tf2 import Estimator as KerasEstimator
from zoo.pipeline.estimator import Estimator as ZooEstimator

init_orca_context("local", cores=2, memory="2g")
x = np.zeros((8, 2))
shards = XShards.partition(x, num_shards=2).transform_shard(lambda shard: shard * 2)
est = Estimator.from_torch(model=None, optimizer=Adam(), metrics=[Accuracy()], num_workers=2)
est.fit((x, x), epochs=2, batch_size=4, validation_data=(x, x), callbacks=[])
keras_est = KerasEstimator.from_keras(model_creator=lambda config: None)
keras_est.fit(shards, epochs=2, batch_size=4)
reveal_type(read_csv("a.csv"))
reveal_type(shards)
reveal_type(shards.collect())
reveal_type(est)
reveal_type(est.evaluate((x, x), batch_size=4))
reveal_type(est.result_)
reveal_type(keras_est)
reveal_type(OpenVINOEstimator.from_openvino(model_path="m.xml"))
reveal_type(ZooEstimator)
reveal_type(MaxEpoch(3))
reveal_type(init_nncontext)
reveal_type(OrcaContext.get_spark_session)
reveal_type(stop_orca_context)
"""
WRONG_SCRIPT = """
from zoo.orca import init_orca_context
from zoo.orca.data import XShards
init_orca_context(cluster_mode=3)
XShards.partition([1], num_shard=2)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The folder with both packages, built from a copy, so that the checkout stays as it is."""
    folder = tmp_path_factory.mktemp("packages")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(
                ROOT / part, folder / "tree" / part, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__")
            )
        else:
            shutil.copy(ROOT / part, folder / "tree" / part)
    (folder / "tree" / "tests").mkdir()
    (folder / "tree" / "tests" / "test_nothing.py").touch()
    line = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", folder / "tree"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "dist"


@pytest.fixture(scope="module")
def wheel(built) -> Path:
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory) -> Path:
    """The `bin` of an environment with the wheel and what it always needs, and nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in always_needed(PROJECT["dependencies"]):
        found = metadata.distribution(name)
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            (packages / top).symlink_to(found.locate_file(top))
    line = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--no-deps", "--no-index"]
    subprocess.run([*line, "--quiet", wheel], check=True, timeout=120)
    return folder / "bin"


def always_needed(lines: list[str]) -> set[str]:
    """The distributions that these requirements bring, and those that they bring in turn."""
    found: set[str] = set()
    for line in lines:
        asked = Requirement(line)
        if asked.name not in found and (asked.marker is None or asked.marker.evaluate({"extra": ""})):
            found |= {asked.name} | always_needed(metadata.requires(asked.name) or [])
    return found


def doors() -> list[tuple[str, str | None]]:
    """Whatever the README, the docs and the examples import of ours."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    blocks = [
        code for page in pages for code in re.findall(r"^```python.*?\n(.*?)^```$", page.read_text(), re.M | re.S)
    ]
    found: set[tuple[str, str | None]] = set()
    for code in [*blocks, *(path.read_text() for path in sorted((ROOT / "examples").glob("*.py")))]:
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom):
                found |= {(str(node.module), None if each.name == "*" else each.name) for each in node.names}
            elif isinstance(node, ast.Import):
                found |= {(each.name, None) for each in node.names}
    return sorted((each for each in found if each[0].partition(".")[0] in ("zoo", "bigdl")), key=str)


def run(*line, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, timeout=120)


def test_the_wheel_has_all_of_the_packages_and_no_more(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    beside = {"zoo/py.typed", "bigdl/py.typed"}
    assert {name for name in names if ".dist-info/" not in name} == sources | beside
    licences = {name.rpartition("/licenses/")[2] for name in names if "/licenses/" in name}
    assert licences == {"LICENSE", "NOTICE"}


def test_the_source_package_builds_the_wheel_and_has_no_tests(built):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "NOTICE", "pyproject.toml", "README.md", "src/zoo/py.typed", "src/bigdl/py.typed"} <= names
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "docs"))]


def test_the_metadata_say_what_pyproject_says(wheel):
    name = f"orca_estimator-{__version__}.dist-info"
    archive = zipfile.ZipFile(wheel)
    facts = HeaderParser().parsestr(archive.read(f"{name}/METADATA").decode())
    assert (facts["Name"], facts["Version"]) == ("orca-estimator", __version__)
    assert facts["License-Expression"] == "Apache-2.0"
    assert facts["Requires-Python"] == PROJECT["requires-python"]
    assert set(facts.get_all("Provides-Extra")) == PROJECT["optional-dependencies"].keys()
    assert "orca = zoo.orca.command.main:main" in archive.read(f"{name}/entry_points.txt").decode()


def test_versions_that_no_extra_brings_are_the_same_everywhere():
    assert f"MXNET := mxnet=={PINNED['mxnet']}\n" in (ROOT / "Makefile").read_text()
    assert PINNED["horovod"] in (ROOT / "scripts" / "horovod.sh").read_text()
    assert set(EXTRA_OF.values()) <= PROJECT["optional-dependencies"].keys()


def test_the_command_runs_in_an_environment_without_any_extra(bare, tmp_path):
    done = run(bare / "orca", "--version", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"orca-estimator {__version__}\n", "")

    done = run(bare / "orca", "doctor", "--quick", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["ok"]
    states = {each["name"]: each["state"] for each in report["findings"] if each["part"] == "Packages"}
    assert states.pop("core") == "ok"
    assert set(states.values()) == {"absent"}
    mends = {each["name"]: each["mend"] for each in report["findings"]}
    assert mends["torch"] == f'{bare / "python"} -m pip install "orca-estimator[torch]"'

    done = run(bare / "orca", "demo", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith('pip install "orca-estimator[demo]"\n')

    done = run(bare / "orca", "bench", "csv", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith('type: make bench ARGS="csv"\n')


def test_every_door_opens_without_extras_or_says_what_to_type(bare, tmp_path):
    asked = doors()
    assert ("zoo.orca.learn.pytorch", "Estimator") in asked
    done = run(bare / "python", "-c", OPEN_DOORS, json.dumps(asked), *EXTRA_OF, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert answer["frameworks"] == []
    lines = tuple(INSTALL_LINES.values())
    wrong = {
        door: text
        for door, text in answer["told"].items()
        if not (text.startswith("MissingPackageError: ") and text.partition(" Type: ")[2] in lines)
    }
    assert wrong == {}


def test_type_checkers_see_the_hints_of_the_wheel(bare, tmp_path):
    (tmp_path / "right.py").write_text(TYPED_SCRIPT)
    (tmp_path / "wrong.py").write_text(WRONG_SCRIPT)
    line = [sys.executable, "-m", "mypy", "--strict", "--python-executable", bare / "python"]
    done = run(*line, "--cache-dir", tmp_path / "cache", "right.py", "wrong.py", cwd=tmp_path)
    revealed = re.findall(r'right.py:\d+: note: Revealed type is "(.*)"', done.stdout)
    assert len(revealed) == TYPED_SCRIPT.count("reveal_type("), done.stdout + done.stderr
    assert "Any" not in revealed
    assert re.findall(r"(right|wrong).py:(\d+): error: .*\[(.*)\]", done.stdout) == [
        ("wrong", "4", "arg-type"),
        ("wrong", "5", "call-arg"),
    ], done.stdout
