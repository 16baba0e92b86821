"""What a fit tells afterwards: the figures of its epochs, where its time went, and what to do about that."""

from __future__ import annotations

import html
import io
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
# More epochs than these are a line without a mark for each.
_MARKED_EPOCHS = 40
_MUTED = "0.35"
# Training and validation have one colour each in every drawing; so has a phase.
_TRAINING, _VALIDATION = "#1f77b4", "#d95f02"
_PHASE_COLORS = {
    "data_wait": "#e6ab02",
    "compute": "#7fa8cc",
    "sync": "#1b7f79",
    "checkpoint": "#b07aa1",
    "validation": "#d95f02",
}


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
        curves = _curves(self.history)
        panels = len(curves) + bool(len(self.phases))
        rows = -(-panels // _PANELS_A_ROW)
        columns = -(-panels // max(rows, 1))  # four are two and two, and not three and one
        figure = _drawing(figsize=(4.6 * max(columns, 1), 3.6 * max(rows, 1)), layout="constrained")
        figure.suptitle(self._headline(), fontsize="medium", color=_MUTED)
        axes = iter([figure.add_subplot(rows, columns, number + 1) for number in range(panels)])
        for name, names in curves.items():
            _draw_curves(next(axes), name, self.history[names])
        if len(self.phases):
            _draw_phases(next(axes), self.phases)
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        words = "<br>".join(html.escape(line) for line in self._lines())
        return f"<p>{words}</p>{self.history.to_html()}{self.phases.round(2).to_html()}"

    def _lines(self) -> list[str]:
        lines = [f"FitResult: {self._headline()}"]
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

    def _headline(self) -> str:
        restarts = f", {_counted(self.restarts, 'restart')}" if self.restarts else ""
        epochs, workers = _counted(len(self.history), "epoch"), _counted(self.world_size, "worker")
        return f"{epochs}, {self.rows:,} rows, {workers}{restarts}"


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


def _drawing(figsize: tuple[float, float], layout: Any) -> Figure:
    """An empty figure made without pyplot: no window opens, no backend is chosen, and notebooks show it anyway."""
    from matplotlib.figure import Figure

    class Drawing(Figure):
        def _repr_png_(self) -> bytes:
            file = io.BytesIO()
            self.savefig(file, format="png", dpi=110)
            return file.getvalue()

    return Drawing(figsize=figsize, layout=layout)


def _draw_curves(axes: Axes, title: str, columns: pd.DataFrame) -> None:
    _plain(axes, title, "epoch")
    many = len(columns) > _MARKED_EPOCHS
    for name in columns:
        known = columns[name].dropna()
        color = _VALIDATION if str(name).startswith("val_") else _TRAINING
        axes.plot(known.index, known, marker=None if many else "o", markersize=4, color=color, label=str(name))
        if len(known):
            last = (known.index[-1], known.iloc[-1])
            axes.annotate(f" {last[1]:.3g}", last, color=color, fontsize="small", va="center", annotation_clip=False)
    axes.locator_params(axis="x", integer=True)
    axes.grid(axis="y", color="0.9")
    axes.margins(x=0.12)
    axes.legend(frameon=False, fontsize="small")


def _draw_phases(axes: Axes, phases: pd.DataFrame) -> None:
    _plain(axes, "where the time went", "seconds")
    left, total = pd.Series(0.0, index=phases.index), float(phases.to_numpy().sum())
    for name in phases:
        share = f" {phases[name].sum() / total:.0%}" if total else ""
        ranks = [f"rank {rank}" for rank in phases.index]
        axes.barh(ranks, phases[name], 0.6, left=left, color=_PHASE_COLORS[str(name)], label=f"{name}{share}")
        left = left + phases[name]
    axes.invert_yaxis()
    axes.margins(y=0.3 / max(len(phases), 1))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=3, frameon=False, fontsize="small")


def _plain(axes: Axes, title: str, xlabel: str) -> None:
    axes.set_title(title, fontsize="medium")
    axes.set_xlabel(xlabel, color=_MUTED)
    axes.spines[["top", "right"]].set_visible(False)


def _figures(row: pd.Series) -> str:
    shown = [(name, value) for name, value in row.items() if is_measure(str(name)) and is_number(value)]
    return ", ".join(f"{name} {value:.4g}" for name, value in shown)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
