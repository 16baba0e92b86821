"""ZooOptimizer: a TensorFlow optimizer whose train op can be run over all workers."""

from __future__ import annotations

from typing import Any

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.tf2.quiet import import_tensorflow

# The graph itself remembers what its train operations are made of.
_MADE = "_zoo_tfpark_train_ops"


class ZooOptimizer:
    """Wraps an optimizer of `tensorflow.compat.v1.train`, so that TFOptimizer and TFEstimator can train with it.

    Example:
        train_op = ZooOptimizer(tf.train.AdamOptimizer(1e-3)).minimize(loss)
    """

    def __init__(self, optimizer: Any, name: str | None = None):
        if not (hasattr(optimizer, "compute_gradients") and hasattr(optimizer, "apply_gradients")):
            raise InvalidArgumentError(
                "Expected an optimizer of tensorflow.compat.v1.train, such as AdamOptimizer(), got a "
                f"{type(optimizer).__name__}. Give others to TFOptimizer.from_loss."
            )
        self._optimizer = optimizer
        self._name = name

    def __repr__(self) -> str:
        return f"ZooOptimizer({self._optimizer!r})"

    def get_name(self) -> str:
        """The name given, or one made of the optimizer's."""
        return self._name or f"Zoo{self._optimizer.get_name()}"

    def minimize(self, loss: Any, global_step: Any = None, var_list: Any = None, **options: Any) -> Any:
        """The operation of a step that makes the loss smaller.

        Args:
            options: those of the optimizer's `compute_gradients`, and `name`.
        """
        name = options.pop("name", None)
        pairs = self.compute_gradients(loss, var_list=var_list, **options)
        if all(gradient is None for gradient, _ in pairs):
            raise InvalidArgumentError(
                f"The loss {loss.name} has no gradient over any of {', '.join(variable.name for _, variable in pairs)}."
            )
        return self.apply_gradients(pairs, global_step, name)

    def compute_gradients(self, loss: Any, **options: Any) -> list[tuple[Any, Any]]:
        """Pairs of gradient and variable, as the optimizer computes them; they may be changed before they go on."""
        return self._optimizer.compute_gradients(loss, **options)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> Any:
        """The operation that applies gradients, those of this process or, when it is run by workers, of all of them."""
        import_tensorflow()
        from zoo.orca.learn.tf.training import FedGradient, TrainOps, rate_of

        fed = [FedGradient.of(gradient, variable) for gradient, variable in grads_and_vars if gradient is not None]
        pairs = [(each.gradient, each.variable) for each in fed]
        applied = self._optimizer.apply_gradients(pairs, global_step, name or self.get_name())
        operation = getattr(applied, "op", applied)
        made = TrainOps(tuple(fed), operation, rate=rate_of(self._optimizer))
        setattr(operation.graph, _MADE, {**getattr(operation.graph, _MADE, {}), operation.name: made})
        return applied

    def __getattr__(self, name: str) -> Any:
        # Slots, variables and the like are the optimizer's. Names with underscores are asked for while unpickling.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._optimizer, name)


def train_ops_of(train_op: Any) -> Any:
    """What a train op of ZooOptimizer is made of; a typed error for others."""
    operation = getattr(train_op, "op", train_op)
    made = getattr(getattr(operation, "graph", None), _MADE, {})
    if getattr(operation, "name", None) not in made:
        raise InvalidArgumentError(
            "Expected train_op to be made by ZooOptimizer, for gradients must be combined over all workers before they "
            f"are applied, got {train_op!r}. Type ZooOptimizer(optimizer).minimize(loss)."
        )
    return made[operation.name]
