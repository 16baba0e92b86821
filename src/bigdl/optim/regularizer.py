"""Regularizers: what the weights of a layer cost beside the loss."""

from __future__ import annotations

from zoo.orca.errors import InvalidArgumentError


class L1L2Regularizer:
    """l1 * |w| + l2 / 2 * w ** 2, summed over the weights.

    Example: ``Linear(10, 1, wRegularizer=L1L2Regularizer(0.01, 0.1))``
    """

    def __init__(self, l1: float, l2: float, bigdl_type: str = "float") -> None:
        for name, value in (("l1", l1), ("l2", l2)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                raise InvalidArgumentError(f"Expected {name} to be a number from 0 on, got {value!r}")
        self.l1 = float(l1)
        self.l2 = float(l2)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items() if value)})"


class L1Regularizer(L1L2Regularizer):
    """l1 * |w|, summed over the weights.

    Example: ``Linear(10, 1, wRegularizer=L1Regularizer(0.01))``
    """

    def __init__(self, l1: float, bigdl_type: str = "float") -> None:
        super().__init__(l1, 0.0)


class L2Regularizer(L1L2Regularizer):
    """l2 / 2 * w ** 2, summed over the weights.

    Example: ``Linear(10, 1, wRegularizer=L2Regularizer(0.1))``
    """

    def __init__(self, l2: float, bigdl_type: str = "float") -> None:
        super().__init__(0.0, l2)
