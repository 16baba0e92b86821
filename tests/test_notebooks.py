"""Every notebook of the examples runs from its first cell to its last, and shows what it promises."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parent.parent / "examples" / "notebooks"
ENGINE_OF = {"first_hour.ipynb": "local", "keras_on_spark.ipynb": "spark"}


def pytest_generate_tests(metafunc):
    if "notebook" in metafunc.fixturenames:
        engines = metafunc.config.getoption("--engines").split(",")
        metafunc.parametrize("notebook", [name for name, engine in ENGINE_OF.items() if engine in engines])


def test_every_notebook_is_run_and_stored_without_outputs():
    assert {path.name for path in NOTEBOOKS.glob("*.ipynb")} == ENGINE_OF.keys()
    for name in ENGINE_OF:
        cells = nbformat.read(NOTEBOOKS / name, as_version=4).cells
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


@pytest.fixture
def shown(notebook, in_folder, monkeypatch) -> list[dict]:
    """What the cells of a notebook put out, as one sees them in the end."""
    for variable in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(variable, str(in_folder / "jupyter"))
    read = nbformat.read(NOTEBOOKS / notebook, as_version=4)
    done = NotebookClient(read, timeout=300, kernel_name="python3").execute()
    return [output for cell in done.cells if cell.cell_type == "code" for output in cell.outputs]


@pytest.mark.long
def test_notebook_runs_and_shows_bars_tables_and_plots(shown):
    assert not [output for output in shown if output.output_type == "error"]
    written = "".join(output.text for output in shown if output.get("name") == "stderr")
    frames = [frame.strip() for frame in re.split(r"[\r\n]+", written) if frame.strip()]
    assert all(re.match(r"\w+: +\d", frame) for frame in frames), "bars, and no complaint"
    assert any(re.match(r"fit: 100%\|.*, 00:00 left, loss=\S+, rows/s=", frame) for frame in frames)
    rich = [output.data for output in shown if "data" in output]
    assert any("<table" in data.get("text/html", "") for data in rich)
    assert any("image/png" in data for data in rich)
