"""What a model gives for a row, and how that is written: as Spark and Arrow types, without a loop over rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.predict.model import Model, PredictFunction, Result, as_outputs
from zoo.orca.optional import require

_VECTOR = pa.struct(
    [
        pa.field("type", pa.int8(), nullable=False),
        pa.field("size", pa.int32()),
        pa.field("indices", pa.list_(pa.field("element", pa.int32(), nullable=False))),
        pa.field("values", pa.list_(pa.field("element", pa.float64(), nullable=False))),
    ]
)
_DENSE = 1

#: The name of what predict adds: a column, or a key of a shard.
PREDICTION = "prediction"


@dataclass(frozen=True)
class OutputType:
    """The kind of a model's prediction for one row.

    Attributes:
        ranks: the dimensions of each output, the first (rows) left out.
        several: whether the model gives a list of outputs.
        squeeze: whether trailing dimensions of size 1 are taken away.
        arrays: whether one dimension is an array of float, not an ML vector.
    """

    ranks: tuple[int, ...]
    several: bool = False
    squeeze: bool = False
    arrays: bool = False

    def __post_init__(self) -> None:
        if self.several and max(self.ranks) > 1:
            raise InvalidArgumentError(
                "a DataFrame holds the outputs of a model with several as vectors, a number or one dimension a row "
                f"each, but the outputs have {', '.join(map(str, self.ranks))} dimensions a row. "
                "Flatten them in forward(), or predict on an XShards."
            )

    @staticmethod
    def probe(
        predict: PredictFunction, features: tuple[Any, ...], squeeze: bool = False, arrays: bool = False
    ) -> OutputType:
        """Decide from the prediction for a few rows."""
        result = Model(predict, squeeze)(features)
        ranks = tuple(output.ndim - 1 for output in as_outputs(result))
        return OutputType(ranks, isinstance(result, list), squeeze, arrays)

    @property
    def spark_type(self) -> Any:
        """Float for a number, an ML vector for one dimension, nested arrays for more; vectors for several outputs."""
        types = require("pyspark.sql.types", "A Spark DataFrame")
        linalg = require("pyspark.ml.linalg", "A Spark DataFrame")
        if self.several:
            return types.ArrayType(linalg.VectorUDT())
        if self._is_vector:
            return linalg.VectorUDT()
        kind = types.FloatType()
        for _ in range(self.ranks[0]):
            kind = types.ArrayType(kind)
        return kind

    def to_arrow(self, result: Result) -> pa.Array:
        """Predictions as Arrow carries a column of `spark_type`."""
        outputs = as_outputs(result)
        ranks = tuple(output.ndim - 1 for output in outputs)
        if ranks != self.ranks or isinstance(result, list) != self.several:
            raise InvalidArgumentError(
                f"the model's outputs have {ranks} dimensions a row here, but had {self.ranks} for the first rows. "
                "Expected the same for every batch: look at squeeze() in forward()."
            )
        if self.several:
            return _lists_of_vectors(outputs)
        return _vectors(outputs[0]) if self._is_vector else nested_lists(outputs[0])

    @property
    def _is_vector(self) -> bool:
        return self.ranks == (1,) and not self.arrays


def nested_lists(array: np.ndarray) -> pa.Array:
    """An array as float32, in as many levels of lists as it has dimensions after the first."""
    nested = pa.array(np.ascontiguousarray(array, np.float32).reshape(-1))
    for axis in range(array.ndim - 1, 0, -1):
        lists = int(np.prod(array.shape[:axis]))
        nested = _even_lists(nested, lists, array.shape[axis])
    return nested


def flat_lists(outputs: Sequence[np.ndarray]) -> pa.Array:
    """Several outputs as a list a row, of a list of float32 for each output."""
    values, offsets = _interleaved(outputs, np.float32)
    return _even_lists(pa.ListArray.from_arrays(offsets, values), len(outputs[0]), len(outputs))


def _vectors(array: np.ndarray) -> pa.Array:
    values = pa.array(np.ascontiguousarray(array, np.float64).reshape(-1))
    return _dense(_even_lists(values, len(array), array.shape[1], nullable=False))


def _lists_of_vectors(outputs: Sequence[np.ndarray]) -> pa.Array:
    values, offsets = _interleaved(outputs, np.float64)
    vectors = _dense(pa.ListArray.from_arrays(offsets, values, type=_VECTOR.field("values").type))
    return _even_lists(vectors, len(outputs[0]), len(outputs))


def _interleaved(outputs: Sequence[np.ndarray], dtype: Any) -> tuple[pa.Array, pa.Array]:
    """The values of all outputs row by row, and where each output of each row begins."""
    flat = [np.asarray(output, dtype).reshape(len(output), -1) for output in outputs]
    widths = [each.shape[1] for each in flat]
    ends = np.cumsum(np.tile(np.asarray(widths, np.int32), len(flat[0])), dtype=np.int32)
    offsets = np.concatenate([np.zeros(1, np.int32), ends])
    return pa.array(np.concatenate(flat, axis=1).reshape(-1)), pa.array(offsets)


def _dense(values: pa.Array) -> pa.Array:
    """Lists of doubles as dense ML vectors: structs, which Spark reads as its own."""
    rows = len(values)
    kinds = pa.array(np.full(rows, _DENSE, np.int8))
    nothing = [pa.nulls(rows, _VECTOR.field(name).type) for name in ("size", "indices")]
    return pa.StructArray.from_arrays([kinds, *nothing, values], fields=list(_VECTOR))


def _even_lists(values: pa.Array, lists: int, width: int, nullable: bool = True) -> pa.Array:
    offsets = pa.array(np.arange(lists + 1, dtype=np.int32) * np.int32(width))
    return pa.ListArray.from_arrays(offsets, values, type=pa.list_(pa.field("element", values.type, nullable)))
