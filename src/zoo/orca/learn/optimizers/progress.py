"""How far training with an optimizer came, which BigDL keeps in the optimizer: epochs, iterations and its own state.

What is kept is forgotten with the optimizer, and copies and pickles of one know nothing of it: they begin anew.
"""

from __future__ import annotations

import weakref
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
