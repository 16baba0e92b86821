"""Callbacks that follow one figure: stop when it gets no better, keep the checkpoint where it was best."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.callbacks.base import Callback, Run, is_number, numbers_of
from zoo.orca.learn.trigger import Trigger

# Figures that are better when higher have one of these in their name.
_HIGHER = ("acc", "auc", "f1", "precision", "recall", "ndcg", "hit")
_LOWER = ("loss", "error")


class Monitor:
    """One figure by name: which way it gets better, and its value among others.

    >>> Monitor("val_accuracy").better(0.9, than=0.8)
    True
    >>> Monitor("val_loss").better(0.9, than=0.8)
    False
    """

    def __init__(self, name: str, mode: str = "auto") -> None:
        if not isinstance(name, str) or not name:
            raise InvalidArgumentError(f"Expected monitor to be the name of a figure, such as 'val_loss', got {name!r}")
        self.name = name
        self.mode = _mode(name, mode)

    def __repr__(self) -> str:
        return f"Monitor({self.name!r}, mode={self.mode!r})"

    def value(self, figures: Mapping[str, Any]) -> float:
        """The figure, or a typed error that names those there are."""
        known = numbers_of(figures)
        if self.name in known:
            return known[self.name]
        hint = ""
        if self.name.startswith("val_") and not any(name.startswith("val_") for name in known):
            hint = " Nothing was validated: give fit validation_data, or monitor a figure of training."
        elif f"val_{self.name}" in known:
            hint = f" Did you mean 'val_{self.name}'?"
        names = ", ".join(f"'{name}'" for name in sorted(known)) or "none"
        raise InvalidArgumentError(f"Expected monitor to be one of the figures {names}, got '{self.name}'.{hint}")

    def better(self, value: float, than: float | None, by: float = 0.0) -> bool:
        """Whether a value is better than another, by more than a margin; anything is better than none, NaN never is."""
        if math.isnan(value):
            return False
        if than is None:
            return True
        return value > than + by if self.mode == "max" else value < than - by


class EarlyStopping(Callback):
    """Stops training when a figure was not better for some epochs in a row.

    Epochs in which the figure was not measured do not count.

    Args:
        monitor: the figure's name, as in the history: "val_loss", "train_loss", "val_accuracy".
        patience: after so many epochs without a better value training stops.
        min_delta: a value must be better than the best by more than this.
        mode: "min" or "max" is better; "auto" is "max" for names with acc, auc, f1, precision, recall, ndcg or hit.

    Example:
        >>> stopping = EarlyStopping(monitor="train_loss", patience=2)
        >>> for epoch, loss in enumerate([0.5, 0.4, 0.4, 0.6], start=1):
        ...     run = Run(epoch=epoch, figures={"train_loss": loss})
        ...     stopping.on_epoch_end(run)
        >>> run.stopped
        'train_loss was not better than 0.4 (epoch 2) for 2 epochs'
    """

    # Of its ranks one decides for all: a figure may be there on rank 0 alone.
    rank_zero_only = True

    def __init__(
        self, monitor: str = "val_loss", patience: int = 3, min_delta: float = 0.0, mode: str = "auto"
    ) -> None:
        if isinstance(patience, bool) or not isinstance(patience, int) or patience < 0:
            raise InvalidArgumentError(f"Expected patience to be a whole number of epochs, got {patience!r}")
        if not is_number(min_delta) or not min_delta >= 0:
            raise InvalidArgumentError(f"Expected min_delta to be a number of at least 0, got {min_delta!r}")
        self._monitor = Monitor(monitor, mode)
        self.monitor = monitor
        self.mode = self._monitor.mode
        self.patience = patience
        self.min_delta = float(min_delta)
        self._best: float | None = None
        self._best_epoch = 0
        self._waited = 0

    def on_epoch_end(self, run: Run) -> None:
        if self._is_unmeasured(run):
            return
        value = self._monitor.value(run.figures)
        if self._monitor.better(value, self._best, self.min_delta):
            self._best, self._best_epoch, self._waited = value, run.epoch, 0
            return
        self._waited += 1
        if self._waited >= self.patience:
            best = "any" if self._best is None else f"{self._best:g} (epoch {self._best_epoch})"
            epochs = "1 epoch" if self._waited == 1 else f"{self._waited} epochs"
            run.stop(f"{self.monitor} was not better than {best} for {epochs}")

    def _is_unmeasured(self, run: Run) -> bool:
        """Whether validation is still to come: a trigger may ask for it in some epochs only."""
        validated = any(name.startswith("val_") for name in run.figures)
        expected = run.validates is True or self._best is not None
        return self.monitor.startswith("val_") and not validated and expected

    def state_dict(self) -> dict[str, Any]:
        return {"best": self._best, "best_epoch": self._best_epoch, "waited": self._waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._best, self._best_epoch, self._waited = state["best"], state["best_epoch"], state["waited"]


class ModelCheckpoint(Callback):
    """Writes checkpoints into the estimator's model_dir, and keeps the last ones and the best one.

    Args:
        every: when: "1ep", "500ba", "10min", or any trigger.
        keep_last: how many of the newest are kept; None keeps all.
        monitor: the figure by which one is the best, which is kept as well; None keeps no best one.
        mode: "min" or "max" is better; "auto" goes by the figure's name.

    Example:
        >>> checkpoint = ModelCheckpoint(every="500ba", keep_last=2, monitor="val_accuracy")
        >>> checkpoint.trigger, checkpoint.mode
        (EveryBatches(500), 'max')
    """

    def __init__(
        self, every: Any = "1ep", keep_last: int | None = 3, monitor: str | None = None, mode: str = "auto"
    ) -> None:
        trigger = Trigger.convert_trigger(every)
        if trigger is None:
            raise InvalidArgumentError("Expected every to say when, such as '1ep', '500ba' or '10min', got None.")
        if keep_last is not None and (isinstance(keep_last, bool) or not isinstance(keep_last, int) or keep_last < 1):
            raise InvalidArgumentError(f"Expected keep_last to be a whole number above 0 or None, got {keep_last!r}")
        self.trigger = trigger
        self.keep_last = keep_last
        self.monitor = monitor
        self.mode = _mode("", mode) if monitor is None else Monitor(monitor, mode).mode


def _mode(name: str, mode: str) -> str:
    if mode not in ("auto", "min", "max"):
        raise InvalidArgumentError(f"Expected mode to be 'auto', 'min' or 'max', got {mode!r}")
    if mode != "auto":
        return mode
    text = name.lower()
    higher = any(part in text for part in _HIGHER) and not any(part in text for part in _LOWER)
    return "max" if higher else "min"
