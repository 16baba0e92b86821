"""`orca demo` learns on every engine, draws, and says the same everywhere but for the engine's name."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LINES = [
    "Handwritten digits on the {engine} engine",
    "1797 images in 4 shards: 1355 to learn from, 442 held out",
    "Training on 2 workers",
    "learning curve in demo-output/learning-curve-{engine}.png",
]


def pytest_generate_tests(metafunc):
    if "engine_name" in metafunc.fixturenames:
        metafunc.parametrize("engine_name", metafunc.config.getoption("--engines").split(","))


@functools.cache
def run(engine: str) -> tuple[subprocess.CompletedProcess[str], dict[str, bytes]]:
    """Run the demo in a folder of its own, with no terminal; gives the files that it wrote, too."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "zoo.orca", "demo", "--engine", engine],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        paths = [path for path in Path(folder).rglob("*") if path.is_file()]
        return done, {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_demo_learns_and_draws_the_same_on_every_engine(engine_name):
    done, files = run(engine_name)
    assert (done.returncode, done.stderr) == (0, "")
    said = [line.strip() for line in done.stdout.splitlines()]
    for line in LINES:
        assert line.format(engine=engine_name) in said
    assert "\033" not in done.stdout
    (accuracy,) = re.findall(r"accuracy (\d\.\d+) on 442 held-out images", done.stdout)
    assert float(accuracy) >= 0.9
    assert f"accuracy {accuracy} " in run("local")[0].stdout
    assert list(files) == [f"demo-output/learning-curve-{engine_name}.png"]
    assert all(image.startswith(b"\x89PNG") and len(image) > 10_000 for image in files.values())


def test_demo_names_the_lines_for_the_other_engines(engine_name):
    lines = re.findall(r"demo --engine (\w+)$", run(engine_name)[0].stdout, re.MULTILINE)
    assert lines == [name for name in ("local", "spark", "ray") if name != engine_name]
