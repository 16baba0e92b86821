"""Triggers for training data that is kept on disk, a slice at a time (`OrcaContext.train_data_store = "DISK_n"`).

Here a slice is no epoch of its own, so these are the triggers of `zoo.orca.learn.trigger`; what they add is that the
estimators know where they come from.

>>> from zoo.orca.learn.trigger import TrainState
>>> MaxEpoch(2)(TrainState(epoch=3))
True
"""

from __future__ import annotations

from typing import Any

from zoo.orca.learn import trigger
from zoo.orca.names import public_names


class ZooTrigger(trigger.Trigger):
    """The base of the triggers that fire at the same steps whether data is read whole or slice by slice."""

    #: What estimators ask of a trigger when training data is on disk.
    slice_aware = True


class EveryEpoch(ZooTrigger, trigger.EveryEpoch):
    """Fires when the epoch differs from the one at the previous call; the first call only remembers."""


class SeveralIteration(ZooTrigger, trigger.SeveralIteration):
    """Fires when the number of the next iteration is a multiple of the interval: first after interval - 1."""


class MaxEpoch(ZooTrigger, trigger.MaxEpoch):
    """Fires once so many epochs are done."""

    def __init__(self, max: int) -> None:
        super().__init__(max)


class MaxIteration(ZooTrigger, trigger.MaxIteration):
    """Fires once so many iterations are done."""


class MaxScore(ZooTrigger, trigger.MaxScore):
    """Fires when the last validation's score is above a value."""


class MinLoss(ZooTrigger, trigger.MinLoss):
    """Fires when the last iteration's loss is below a value."""


class TriggerAnd(ZooTrigger, trigger.TriggerAnd):
    """Fires when all of its triggers do."""

    def __init__(self, first: Any, *other: Any) -> None:
        super().__init__(first, *other)


class TriggerOr(ZooTrigger, trigger.TriggerOr):
    """Fires when any of its triggers does."""

    def __init__(self, first: Any, *other: Any) -> None:
        super().__init__(first, *other)


__dir__ = public_names(globals())
