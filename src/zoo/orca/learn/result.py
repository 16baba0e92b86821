"""What a fit tells afterwards: the figures of its epochs, where its time went, and what to do about that."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from zoo.orca.learn.callbacks.base import is_measure, is_number
from zoo.orca.optional import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PHASES = ("data_wait", "compute", "sync", "checkpoint", "validation")

# A phase is worth a word when it takes this part of the time, and at least this many seconds.
_DOMINANT = 0.35
_WORTH_SECONDS = 1.0

# What each phase is in words, and what to type when it takes too much. Computing is what a fit is for.
_REMEDIES = {
    "data_wait": (
        "waiting for data",
        "give the DataLoader num_workers=2 or more, move work from transforms into the stored data, or store it as "
        "Parquet or cached XShards",
    ),
    "sync": (
        "agreeing between ranks",
        "raise batch_size, so that a step has more to compute, use fewer workers, or accumulate=4 to agree less often; "
        "if data_wait or compute differ between ranks, the fast ones wait for the slow one",
    ),
    "checkpoint": (
        "writing checkpoints",
        'write them less often, as with ModelCheckpoint(every="10min"), or to a faster model_dir',
    ),
    "validation": (
        "validating",
        'validate less often, as with checkpoint_trigger="5ep", or give fewer rows as validation_data',
    ),
}

_PANELS_A_ROW = 3


class FitResult:
    """What a fit tells, as `est.result_`.

    Args:
        epochs: the figures of each epoch, over all ranks; "epoch" says which it was.
        phases: for each rank, the seconds it spent in each phase.
        rows: rows trained on, over all ranks and epochs.
        restarts: how many times the gang was started again.
        best_checkpoint, last_checkpoint: where they are, if any were written.
        stopped: the reason why a callback ended the fit early.
        world_size: workers, when the fit ended.

    Attributes:
        history: a frame with a row an epoch and a column a figure.
        phases: a frame with a row a rank and a column a phase, in seconds.

    Example:
        >>> result = FitResult([{"epoch": 1, "train_loss": 0.5}], [{"data_wait": 6.0, "compute": 2.0}], rows=100)
        >>> result.history["train_loss"].tolist()
        [0.5]
        >>> result.remedy.partition(":")[0]
        '75% of the time was waiting for data'
    """

    def __init__(
        self,
        epochs: Sequence[dict[str, Any]],
        phases: Sequence[dict[str, float]],
        rows: int,
        restarts: int = 0,
        best_checkpoint: str | None = None,
        last_checkpoint: str | None = None,
        stopped: str | None = None,
        world_size: int = 1,
    ) -> None:
        self.history = _history(epochs)
        self.phases = _phases(phases)
        self.rows = rows
        self.restarts = restarts
        self.best_checkpoint = best_checkpoint
        self.last_checkpoint = last_checkpoint
        self.stopped = stopped
        self.world_size = world_size

    @property
    def remedy(self) -> str | None:
        """What takes too much of the time and what to type about it; None when nothing does."""
        seconds = self.phases.mean() if len(self.phases) else pd.Series(dtype=float)
        total = seconds.sum()
        wasted = seconds.reindex(list(_REMEDIES)).fillna(0.0)
        phase, spent = str(wasted.idxmax()), float(wasted.max())
        if spent < _WORTH_SECONDS or spent < _DOMINANT * total:
            return None
        doing, advice = _REMEDIES[phase]
        return f"{spent / total:.0%} of the time was {doing}: {advice}."

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Draw the curves of training and validation, and each rank's phases; save them when there is a path."""
        require("matplotlib", "result_.plot()")
        # The figure is made without pyplot, so that no window opens and no backend is chosen.
        from matplotlib.figure import Figure

        curves = _curves(self.history)
        panels = len(curves) + bool(len(self.phases))
        columns, rows = min(panels, _PANELS_A_ROW), -(-panels // _PANELS_A_ROW)
        figure = Figure(figsize=(5 * max(columns, 1), 4 * max(rows, 1)), layout="constrained")
        axes = iter([figure.add_subplot(rows, columns, number + 1) for number in range(panels)])
        for name, names in curves.items():
            _draw_curves(next(axes), name, self.history[names])
        if len(self.phases):
            _draw_phases(next(axes), self.phases)
        if path is not None:
            figure.savefig(path)
        return figure

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        words = "<br>".join(html.escape(line) for line in self._lines())
        return f"<p>{words}</p>{self.history.to_html()}{self.phases.round(2).to_html()}"

    def _lines(self) -> list[str]:
        lines = [f"FitResult: {_counted(len(self.history), 'epoch')}, {self.rows:,} rows, {self._workers()}"]
        if len(self.history):
            lines.append(f"  last epoch: {_figures(self.history.iloc[-1])}")
        if len(self.phases):
            seconds = self.phases.mean()
            lines.append("  seconds a rank: " + ", ".join(f"{name} {value:.1f}" for name, value in seconds.items()))
        told = {
            "stopped": self.stopped,
            "best checkpoint": self.best_checkpoint,
            "last checkpoint": self.last_checkpoint,
            "remedy": self.remedy,
        }
        return lines + [f"  {name}: {value}" for name, value in told.items() if value is not None]

    def _workers(self) -> str:
        restarts = f", {_counted(self.restarts, 'restart')}" if self.restarts else ""
        return _counted(self.world_size, "worker") + restarts


def _history(epochs: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """A row an epoch. A figure that some epochs lack is NaN there; whole numbers stay whole where all have it."""
    rows = [{name: value for name, value in each.items() if name != "epoch"} for each in epochs]
    index = pd.Index([each.get("epoch", number) for number, each in enumerate(epochs, start=1)], name="epoch")
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pd.DataFrame({name: [row.get(name) for row in rows] for name in names}, index=index)


def _phases(phases: Sequence[dict[str, float]]) -> pd.DataFrame:
    index = pd.RangeIndex(len(phases), name="rank")
    return pd.DataFrame({name: [float(each.get(name, 0.0)) for each in phases] for name in PHASES}, index=index)


def _curves(history: pd.DataFrame) -> dict[str, list[str]]:
    """The columns that belong into one drawing, by what they measure: "loss" has train_loss and val_loss."""
    found: dict[str, list[str]] = {}
    for name in history.columns:
        if is_measure(str(name)) and pd.api.types.is_numeric_dtype(history[name]):
            found.setdefault(str(name).removeprefix("train_").removeprefix("val_"), []).append(str(name))
    return found


def _draw_curves(axes: Axes, title: str, columns: pd.DataFrame) -> None:
    for name in columns:
        known = columns[name].dropna()
        axes.plot(known.index, known, marker="o", label=str(name))
    axes.set(title=title, xlabel="epoch")
    axes.locator_params(axis="x", integer=True)
    axes.legend()


def _draw_phases(axes: Axes, phases: pd.DataFrame) -> None:
    left = pd.Series(0.0, index=phases.index)
    for name in phases:
        axes.barh([f"rank {rank}" for rank in phases.index], phases[name], left=left, label=str(name))
        left = left + phases[name]
    axes.invert_yaxis()
    axes.set(title="where the time went", xlabel="seconds")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=3)


def _figures(row: pd.Series) -> str:
    shown = [(name, value) for name, value in row.items() if is_measure(str(name)) and is_number(value)]
    return ", ".join(f"{name} {value:.4g}" for name, value in shown)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
