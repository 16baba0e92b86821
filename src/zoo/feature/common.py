"""Preprocessings, FeatureSet and relations, and the names that a star import of this module has always brought."""

from __future__ import annotations

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
from zoo.orca.names import public_names

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

# Existing code counts on the star import for the names of bigdl.util.common.
__getattr__ = _bigdl.brought_along(__name__)

__dir__ = public_names(globals(), _bigdl.__all__)
