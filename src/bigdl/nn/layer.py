"""BigDL's layers: a Torch7-style library over torch. Dimensions and indices count from 1.

>>> import numpy as np
>>> model = Sequential().add(Linear(4, 8)).add(ReLU()).add(Linear(8, 2)).add(LogSoftMax())
>>> model.predict(np.ones((3, 4))).shape
(3, 2)
"""

# ruff: noqa: E402 - what is missing is said first
from __future__ import annotations

from zoo.orca.optional import require

require("torch", "bigdl.nn.layer")

from bigdl.nn import catalogue
from bigdl.nn.base import Layer
from bigdl.nn.container import (
    Bottle,
    Concat,
    ConcatTable,
    Container,
    MapTable,
    ParallelTable,
    Sequential,
    TableOperation,
    TimeDistributed,
)
from bigdl.nn.graph import Input, InputLayer, Model, Node
from bigdl.nn.recurrent import BiRecurrent, Recurrent, RecurrentDecoder
from bigdl.util import common
from zoo.orca.names import public_names

# The classes of the catalogue stand here as if they were written out; pickles find them by this module.
globals().update(catalogue.CLASSES)

__all__ = [
    "BiRecurrent",
    "Bottle",
    "Concat",
    "ConcatTable",
    "Container",
    "Input",
    "InputLayer",
    "Layer",
    "MapTable",
    "Model",
    "Node",
    "ParallelTable",
    "Recurrent",
    "RecurrentDecoder",
    "Sequential",
    "TableOperation",
    "TimeDistributed",
]
__all__ += [*catalogue.CLASSES, *common.__all__]


# Existing code counts on the star import for these.
__getattr__ = common.brought_along(__name__)

__dir__ = public_names(globals(), common.__all__)
