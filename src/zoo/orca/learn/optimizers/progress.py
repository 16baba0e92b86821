"""How far training with an optimizer came, which BigDL keeps in the optimizer: epochs, iterations and its own state.

What is kept is forgotten with the optimizer, and copies and pickles of one know nothing of it: they begin anew.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

_PROGRESS: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()


def progress_of(optimizer: Any) -> dict[str, Any] | None:
    """What `keep_progress` was told last; None for one that never trained."""
    return _PROGRESS.get(optimizer)


def keep_progress(optimizer: Any, progress: dict[str, Any] | None) -> None:
    """Remember tensors and plain data for an optimizer; None forgets."""
    if progress is None:
        _PROGRESS.pop(optimizer, None)
    else:
        _PROGRESS[optimizer] = progress


def at_rate(progress: dict[str, Any], rate: float | None) -> dict[str, Any]:
    """The same progress, to go on from with another learning rate; None leaves its rates.

    What a schedule has made of the old rate it makes of the new one.
    """
    if rate is None or progress.get("rate", rate) == rate:
        return progress
    optimizers = [_optimizer_at(state, rate) for state in progress.get("optimizers") or []]
    schedulers = [_scheduler_at(state, rate) for state in progress.get("schedulers") or []]
    return progress | {"optimizers": optimizers, "schedulers": schedulers, "rate": rate}


def groups_at(groups: Iterable[dict[str, Any]], rate: float) -> list[dict[str, Any]]:
    """Parameter groups of a torch optimizer with another first rate.

    >>> groups_at([{"lr": 0.1}, {"lr": 0.05, "initial_lr": 0.1}], 0.4)
    [{'lr': 0.4}, {'lr': 0.2, 'initial_lr': 0.4}]
    """
    made = []
    for group in groups:
        first = group.get("initial_lr", group["lr"])
        changed = {"lr": rate * (group["lr"] / first if first else 1.0)}
        made.append(group | changed | ({"initial_lr": rate} if "initial_lr" in group else {}))
    return made


def _optimizer_at(state: dict[str, Any], rate: float) -> dict[str, Any]:
    return state | {"param_groups": groups_at(state["param_groups"], rate)} if "param_groups" in state else state


def _scheduler_at(state: dict[str, Any], rate: float) -> dict[str, Any]:
    """A torch scheduler's state; those that it is made of come along."""
    changed: dict[str, Any] = {}
    if "base_lrs" in state:
        changed["base_lrs"] = [rate] * len(state["base_lrs"])
    if "_schedulers" in state:
        changed["_schedulers"] = [_scheduler_at(each, rate) for each in state["_schedulers"]]
    return state | changed
