"""Horovod's `DistributedOptimizer` in a creator of the user's: Keras' optimizer again, whose gradients we add up."""

from __future__ import annotations

from typing import Any

from zoo.orca.errors import NotOfferedError


def unwrap(optimizer: Any) -> None:
    """Make an optimizer that Horovod derived from Keras' that of Keras again; others are left as they are.

    With Keras 3 Horovod's never adds up a gradient, has no variables, and nothing can be derived from it. What it was
    to do is done by the estimator, for every optimizer.
    """
    derived = type(optimizer)
    if derived.__module__ != "horovod._keras" or not hasattr(optimizer, "_allreduce_grads"):
        return
    if optimizer._agg_helper is not None:
        raise NotOfferedError(
            "hvd.DistributedOptimizer(backward_passes_per_step=...) does nothing with Keras 3. Let Keras add up the "
            "gradients of several steps: keras.optimizers.SGD(..., gradient_accumulation_steps=...)."
        )
    optimizer.__class__ = derived.__mro__[1]
