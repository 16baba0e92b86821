"""What a fit tells: frames, a remedy, a text and a drawing."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.orca.errors import MissingPackageError
from zoo.orca.learn.result import PHASES, FitResult

EPOCHS = [
    {
        "epoch": 4,
        "train_loss": 0.5,
        "num_samples": 100,
        "batch_count": 4,
        "val_loss": 0.6,
        "val_auc": 0.7,
        "val_num_samples": 9,
    },
    {"epoch": 5, "train_loss": 0.4, "num_samples": 100, "batch_count": 4},
    {"epoch": 6, "train_loss": 0.3, "num_samples": 100, "batch_count": 4, "val_loss": 0.5, "val_auc": 0.8, "lr": 1},
]
EVEN = [{"data_wait": 1.0, "compute": 7.0, "sync": 1.0}, {"data_wait": 2.0, "compute": 6.0, "sync": 1.0}]


def spent(**seconds: float) -> FitResult:
    return FitResult([], [seconds], rows=0)


def test_history_has_a_row_an_epoch_and_keeps_types():
    history = FitResult(EPOCHS, [], rows=300).history
    assert (history.index.name, history.index.tolist()) == ("epoch", [4, 5, 6])
    assert history.columns.tolist() == [
        "train_loss",
        "num_samples",
        "batch_count",
        "val_loss",
        "val_auc",
        "val_num_samples",
        "lr",
    ]
    assert history["num_samples"].dtype == np.int64
    assert history["train_loss"].tolist() == [0.5, 0.4, 0.3]
    assert history["val_loss"].dtype == np.float64
    assert history["val_loss"].isna().tolist() == [False, True, False]


def test_phases_have_a_row_a_rank_and_all_columns():
    phases = FitResult(EPOCHS, EVEN, rows=300, world_size=2).phases
    assert (phases.index.name, phases.index.tolist()) == ("rank", [0, 1])
    assert tuple(phases.columns) == PHASES
    assert phases["data_wait"].tolist() == [1.0, 2.0]
    assert phases["checkpoint"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("data_wait", "waiting for data: give the DataLoader num_workers="),
        ("sync", "agreeing between ranks: raise batch_size"),
        ("checkpoint", 'writing checkpoints: write them less often, as with ModelCheckpoint(every="10min")'),
        ("validation", "validating: validate less often"),
    ],
)
def test_a_phase_that_dominates_is_named_with_what_to_type(phase, words):
    assert spent(**{"compute": 3.8, phase: 6.2}).remedy.startswith(f"62% of the time was {words}")
    assert spent(**{"compute": 7.0, phase: 3.0}).remedy is None, "30% is no reason to worry"
    assert spent(**{"compute": 0.1, phase: 0.9}).remedy is None, "less than a second is none either"


@given(st.lists(st.fixed_dictionaries({name: st.floats(0, 1e6) for name in PHASES}), max_size=4))
def test_a_remedy_is_given_exactly_when_something_but_computing_dominates(phases):
    result = FitResult([], phases, rows=0)
    means = {name: np.mean([each[name] for each in phases]) if phases else 0.0 for name in PHASES}
    wasted = max(value for name, value in means.items() if name != "compute")
    assert (result.remedy is not None) == (wasted >= 1.0 and wasted >= 0.35 * sum(means.values()))


def test_computing_needs_no_remedy():
    assert spent(compute=1000.0).remedy is None


def test_text_tells_what_matters():
    result = FitResult(
        EPOCHS,
        [{"data_wait": 6.0, "compute": 2.0}],
        rows=12345,
        restarts=1,
        best_checkpoint="/runs/model.9",
        last_checkpoint="/runs/model.13",
        stopped="val_loss was not better",
        world_size=2,
    )
    lines = repr(result).splitlines()
    assert lines[0] == "FitResult: 3 epochs, 12,345 rows, 2 workers, 1 restart"
    assert lines[1] == "  last epoch: train_loss 0.3, val_loss 0.5, val_auc 0.8, lr 1"
    assert lines[2] == "  seconds a rank: data_wait 6.0, compute 2.0, sync 0.0, checkpoint 0.0, validation 0.0"
    assert lines[3:6] == [
        "  stopped: val_loss was not better",
        "  best checkpoint: /runs/model.9",
        "  last checkpoint: /runs/model.13",
    ]
    assert lines[6].startswith("  remedy: 75% of the time was waiting for data")
    assert repr(FitResult([], [], rows=0)) == "FitResult: 0 epochs, 0 rows, 1 worker"


def test_notebooks_get_tables_with_escaped_text():
    shown = FitResult(EPOCHS, EVEN, rows=1, stopped="loss < 1 & falling")._repr_html_()
    assert shown.count("<table") == 2
    assert "loss &lt; 1 &amp; falling" in shown


def lines_of(figure) -> dict[str, tuple[list, list]]:
    """What is drawn: the data of every curve, by its label."""
    return {
        line.get_label(): (line.get_xdata().tolist(), line.get_ydata().tolist())
        for axes in figure.axes
        for line in axes.lines
    }


def test_plot_draws_the_history_and_the_phases(tmp_path):
    result = FitResult(EPOCHS, EVEN, rows=300)
    figure = result.plot(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    drawn = lines_of(figure)
    for name in ("train_loss", "val_loss", "val_auc", "lr"):
        known = result.history[name].dropna()
        assert drawn[name] == (known.index.tolist(), known.tolist())
    assert not {"num_samples", "batch_count", "val_num_samples"} & drawn.keys(), "counts are no curves"
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["loss", "auc", "lr", "where the time went"]
    bars = [(bar.get_x(), bar.get_width()) for bar in figure.axes[-1].patches]
    ends = pd.DataFrame(result.phases).cumsum(axis=1)
    assert [x + width for x, width in bars] == ends.T.to_numpy().ravel().tolist()


def test_plot_of_little_is_a_drawing_too():
    assert FitResult([], [], rows=0).plot().axes == []
    assert [axes.get_title() for axes in FitResult(EPOCHS[:1], [], rows=0).plot().axes] == ["loss", "auc"]


ALONE = """
import sys
from zoo.orca.learn.result import FitResult
assert "matplotlib" not in sys.modules
import matplotlib
matplotlib.use("tkagg")
FitResult([{"epoch": 1, "train_loss": 1.0}], [{"compute": 1.0}], rows=1).plot("drawn.svg")
print(matplotlib.get_backend(), "matplotlib.pyplot" in sys.modules)
"""


def test_plot_needs_no_display_and_leaves_the_backend_as_it_was(in_folder):
    done = subprocess.run(
        [sys.executable, "-c", ALONE], env={"MPLCONFIGDIR": str(in_folder / "mpl")}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.strip().lower()) == (0, "tkagg false"), done.stderr
    assert "<svg" in (in_folder / "drawn.svg").read_text()


def test_without_matplotlib_the_line_to_install_it_is_shown(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackageError, match=r"result_\.plot\(\) needs the package 'matplotlib'.*pip install"):
        FitResult([], [], rows=0).plot()
