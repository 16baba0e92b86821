"""Preprocessings, relations, and what star imports bring."""

from __future__ import annotations

import numpy as np
import pytest

from bigdl.transform.vision.image import HFlip, ImageFeature, RandomCrop
from zoo.feature.common import (
    ArrayToTensor,
    BigDLAdapter,
    ChainedPreprocessing,
    FeatureLabelPreprocessing,
    FeatureToTupleAdapter,
    MLlibVectorToTensor,
    Preprocessing,
    Relation,
    Relations,
    SampleToMiniBatch,
    ScalarToTensor,
    SeqToMultipleTensors,
    SeqToTensor,
    TensorToSample,
    ToTuple,
)
from zoo.orca.errors import InvalidArgumentError, UnknownArgumentError

LEAKED = ["np", "os", "sys", "tempfile", "six", "threading", "warnings", "multiprocessing", "RDD", "SparkContext",
          "SparkConf", "SparkFiles", "DataFrame", "SQLContext", "get_spark_context", "get_node_and_core_number",
          "create_tmp_path", "RNG", "Sample", "JTensor", "JavaValue", "to_list"]  # fmt: skip


@pytest.mark.parametrize(
    ("module", "own"),
    [
        ("zoo.feature.common", "FeatureSet"),
        ("zoo.feature.image", "ImageChannelNormalize"),
        ("bigdl.transform.vision.image", "Pipeline"),
    ],
)
def test_star_imports_bring_what_they_always_did(module, own):
    names: dict[str, object] = {}
    exec(f"from {module} import *", names)
    assert {own, *LEAKED} <= names.keys()


class Vector:
    """As Spark's ML vectors are."""

    def toArray(self):
        return np.array([1.0, 2.0])


@pytest.mark.parametrize(
    ("step", "value", "expected", "sizes"),
    [
        (SeqToTensor([2, 2]), [1, 2, 3, 4], [[1, 2], [3, 4]], [2, 2]),
        (SeqToTensor(), (1, 2), [1, 2], []),
        (SeqToTensor([1]), 3, [3], [1]),
        (ArrayToTensor([2]), np.array([1.0, 2.0]), [1, 2], [2]),
        (MLlibVectorToTensor([2]), Vector(), [1, 2], [2]),
        (ScalarToTensor(), 5, [5], [1]),
        (ChainedPreprocessing([SeqToTensor([2]), ToTuple()]), [1, 2], None, [2]),
    ],
)
def test_numbers_become_tensors(step, value, expected, sizes):
    made = step.transform(value)
    if expected is not None:
        np.testing.assert_array_equal(made, np.array(expected, np.float32), strict=True)
    assert step.sizes == sizes


def test_several_tensors_samples_and_tuples():
    several = SeqToMultipleTensors([[2], [1, 2]])
    first, second = several.transform([1, 2, 3, 4])
    np.testing.assert_array_equal(first, [1, 2])
    np.testing.assert_array_equal(second, [[3, 4]])
    assert several.sizes == [[2], [1, 2]]
    both = FeatureLabelPreprocessing(SeqToTensor([2]), ScalarToTensor())
    sample = both.transform(([1, 2], 3))
    np.testing.assert_array_equal(sample.feature.to_ndarray(), [1, 2])
    np.testing.assert_array_equal(sample.label.to_ndarray(), [3])
    assert FeatureToTupleAdapter(both).transform([1, 2]).labels == []
    np.testing.assert_array_equal(TensorToSample()(np.ones(2)).feature.to_ndarray(), [1, 1])
    assert ToTuple().transform(1) == (1, None)
    assert SampleToMiniBatch(4).transform(sample) is sample
    assert BigDLAdapter(len).transform([1, 2]) == 2
    image, step = np.arange(192).reshape(8, 8, 3), BigDLAdapter(RandomCrop(2, 2))
    first, again = (ChainedPreprocessing(step, seed=1).transform(ImageFeature(image)) for _ in range(2))
    np.testing.assert_array_equal(first["mat"], again["mat"])


def test_a_step_of_ones_own():
    class Halve(Preprocessing):
        def transform(self, value):
            return np.asarray(value, np.float32) / 2

    chain = Halve().chain(ArrayToTensor([2, 1]))
    np.testing.assert_array_equal(chain([2, 4]), [[1], [2]])
    assert chain.sizes is None  # it does more than give a size


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (
            lambda: SeqToTensor([2]).transform([1, 2, 3]),
            InvalidArgumentError,
            r"size \[2\], 2 numbers, but a value has 3",
        ),
        (lambda: SeqToMultipleTensors([[2], [2]]).transform([1]), InvalidArgumentError, "but a value has 1"),
        (lambda: SeqToTensor(sise=[2]), UnknownArgumentError, r"Did you mean size=\[2\]\?"),
        (lambda: ChainedPreprocessing([SeqToTensor(), HFlip()]), InvalidArgumentError, r"is a HFlip.*BigDLAdapter\("),
        (lambda: SampleToMiniBatch(0), InvalidArgumentError, "1 record or more"),
        (lambda: Preprocessing().transform(1), NotImplementedError, "must have a method transform"),
    ],
)
def test_bad_preprocessings_are_answered(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_relations_of_a_file(tmp_path):
    path = tmp_path / "relations.csv"
    path.write_text("q1,a1,1\nq1,a2,0\n\n")
    assert Relations.read(str(path)) == [Relation("q1", "a1", 1), Relation("q1", "a2", 0)]
    path.write_text("q1,a1,1\nq2,a1,yes\n")
    with pytest.raises(InvalidArgumentError, match=r"Line 2 of .* but is 'q2,a1,yes'"):
        Relations.read(str(path))


@pytest.mark.engines("spark")
def test_relations_on_spark(engine, tmp_path):
    import pandas as pd

    frame = pd.DataFrame({"id1": ["q1", "q1"], "id2": ["a1", "a2"], "label": [1, 0]})
    frame.to_csv(tmp_path / "r.csv", header=False, index=False)
    frame.to_parquet(tmp_path / "r.parquet")
    expected = [("q1", "a1", 1), ("q1", "a2", 0)]
    for relations in (
        Relations.read(str(tmp_path / "r.csv"), engine.sc, 2),
        Relations.read_parquet(str(tmp_path / "r.parquet"), engine.sc),
    ):
        assert relations.map(Relation.to_tuple).collect() == expected
