"""Preprocessings, FeatureSet and relations, and the names that a star import of this module has always brought."""

from __future__ import annotations

from typing import Any

from bigdl.util import common as _bigdl
from zoo.feature.feature_set import FeatureSet
from zoo.feature.preprocessing import (
    ArrayToTensor,
    BigDLAdapter,
    ChainedPreprocessing,
    FeatureLabelPreprocessing,
    FeatureToTupleAdapter,
    MLlibVectorToTensor,
    Preprocessing,
    SampleToMiniBatch,
    ScalarToTensor,
    SeqToMultipleTensors,
    SeqToTensor,
    TensorToSample,
    ToTuple,
)
from zoo.feature.relation import Relation, Relations

__all__ = [
    "ArrayToTensor",
    "BigDLAdapter",
    "ChainedPreprocessing",
    "FeatureLabelPreprocessing",
    "FeatureSet",
    "FeatureToTupleAdapter",
    "MLlibVectorToTensor",
    "Preprocessing",
    "Relation",
    "Relations",
    "SampleToMiniBatch",
    "ScalarToTensor",
    "SeqToMultipleTensors",
    "SeqToTensor",
    "TensorToSample",
    "ToTuple",
    *_bigdl.__all__,
]


def __getattr__(name: str) -> Any:
    # Existing code counts on the star import for these; they are loaded when first asked for.
    if name in _bigdl.__all__:
        return getattr(_bigdl, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
