"""BigDL's tensors and samples as zoo has them: they keep dtypes and take scalars."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigdl.util import common as bigdl_common
from zoo.common.arrays import to_list_of_numpy


class JTensor(bigdl_common.JTensor):
    """An array as flat values of its own dtype and a shape, or values at indices when sparse.

    Example: ``JTensor.from_ndarray(np.arange(3)).to_ndarray()``
    """

    def __init__(self, storage: Any, shape: Any, indices: Any = None, bigdl_type: str = "float"):
        super().__init__(storage, shape, indices, bigdl_type)
        self.storage = np.asarray(storage).reshape(-1)

    @classmethod
    def from_ndarray(cls, a_ndarray: Any, bigdl_type: str = "float") -> JTensor | None:
        """A dense tensor with the values of an array or a number; None stays None."""
        if a_ndarray is None:
            return None
        (array,) = to_list_of_numpy([a_ndarray])
        return cls(array, array.shape, bigdl_type=bigdl_type)


class Sample(bigdl_common.Sample):
    """One record: feature tensors and label tensors.

    Example: ``Sample.from_ndarray(np.ones(3), np.array(1))``
    """

    @classmethod
    def from_ndarray(cls, features: Any, labels: Any, bigdl_type: str = "float") -> Sample:
        """A sample of arrays: each side an ndarray, a number, or a list of them."""
        sides = [
            [JTensor(array, array.shape, bigdl_type=bigdl_type) for array in to_list_of_numpy(side)]
            for side in (features, labels)
        ]
        return cls(sides[0], sides[1], bigdl_type)
