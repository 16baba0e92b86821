"""How replicas agree: one table of the ways, each imported on first use."""

from __future__ import annotations

from typing import Any

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.sync.base import Group, Sync
from zoo.orca.optional import require

__all__ = ["SYNCS", "Group", "Sync", "make_sync"]

#: Each name, and the module and class behind it.
SYNCS = {
    "solo": ("zoo.orca.learn.sync.solo", "SoloSync"),
    "bigdl": ("zoo.orca.learn.sync.bigdl", "BigDLSync"),
    "torch_distributed": ("zoo.orca.learn.sync.torch_distributed", "TorchDistributedSync"),
    "horovod": ("zoo.orca.learn.sync.horovod", "HorovodSync"),
    "kvstore": ("zoo.orca.learn.sync.kvstore", "KVStoreSync"),
}


def make_sync(name: str, **options: Any) -> Sync:
    """The sync of that name, made on the driver; options are those of its class.

    >>> make_sync("solo").sharded
    False
    """
    if name not in SYNCS:
        raise InvalidArgumentError(f"sync must be one of {', '.join(map(repr, SYNCS))}, but {name!r} was given.")
    module, class_name = SYNCS[name]
    return getattr(require(module, "Training on several workers"), class_name)(**options)
