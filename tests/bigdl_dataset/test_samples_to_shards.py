"""Samples become shards of a bounded size, and of records that fit each other."""

from __future__ import annotations

import numpy as np
import pytest

from bigdl.dataset.dataset import DataSet
from bigdl.transform.vision.image import LocalImageFrame, MatToTensor
from bigdl.util.common import Sample
from zoo.orca.errors import InvalidArgumentError, NotOfferedError
from zoo.orca.learn.bigdl import samples
from zoo.orca.learn.records import Records

pytestmark = pytest.mark.engines("local")


def shards_of(records: list) -> list:
    return samples.sample_data(Records.of(records, 1))[0].collect()


def test_large_records_make_small_shards(engine):
    small = [Sample.from_ndarray(np.full(2, number), 1.0) for number in range(1030)]
    assert [len(shard["x"]) for shard in shards_of(small)] == [1024, 6]
    large = [np.zeros((5, 1 << 20), np.float32)] * 7  # 20 MB each
    assert [len(shard["x"]) for shard in shards_of(large)] == [3, 3, 1]
    assert shards_of([]) == []


@pytest.mark.parametrize(
    ("records", "text"),
    [
        ([Sample.from_ndarray(np.ones(2), []), Sample.from_ndarray(np.ones(2), 1.0)], "0 and others 1 labels"),
        ([Sample.from_ndarray([np.ones(2)] * 2, []), np.ones(2)], "1 and others 2 features"),
        ([np.ones(2), np.ones(3)], "arrays of one shape"),
        (["a"], "Expected records that are Samples, got a str"),
    ],
)
def test_records_that_do_not_fit(engine, records, text):
    with pytest.raises(InvalidArgumentError, match=text):
        shards_of(records)


def test_what_a_data_set_holds(engine):
    frame = LocalImageFrame([np.ones((2, 2, 3))], [3])
    made = DataSet.image_frame(frame).transform(MatToTensor())
    (shard,) = made.estimator_data()[0].collect()
    assert (shard["x"].shape, shard["y"].tolist()) == ((1, 3, 2, 2), [[3]])
    assert made.get_image_frame().is_local()
    with pytest.raises(InvalidArgumentError, match=r"must be an ImageFrame, .* but is a list"):
        DataSet.image_frame([frame])
    with pytest.raises(NotOfferedError, match="holds no images"):
        DataSet(Records.of([np.ones(2)]).placement).get_image_frame()
