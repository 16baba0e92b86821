"""A pickle module for `torch.save(obj, path, pickle_module=zoo_pickle_module)`: cloudpickle writes, pickle reads.

Classes and functions of a script travel inside the file, so that who loads it need not have the script.

>>> loads(dumps(lambda x: x + 1))(2)
3
"""

from __future__ import annotations

from pickle import HIGHEST_PROTOCOL, PicklingError, Unpickler, UnpicklingError, load, loads

from cloudpickle import CloudPickler as Pickler
from cloudpickle import dump, dumps

__all__ = [
    "HIGHEST_PROTOCOL",
    "Pickler",
    "PicklingError",
    "Unpickler",
    "UnpicklingError",
    "dump",
    "dumps",
    "load",
    "loads",
]
