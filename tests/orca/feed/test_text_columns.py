"""Text in columns and arrays: let in where a model takes it, as arrays of bytes, and refused elsewhere."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ranks import read
from zoo.orca import OrcaContext
from zoo.orca.data import XShards
from zoo.orca.errors import InvalidArgumentError
from zoo.orca.feed import as_feed
from zoo.orca.feed.arrays import SharedFeed
from zoo.orca.feed.shards import Columns
from zoo.orca.learn.predict import predict

HERE = SimpleNamespace(name="local", one_machine=True)
TEXTS = ["", "a", "ünï", "line\nbreak", "nul\0", "x" * 3000, "日本"]
NUMBERS = np.arange(len(TEXTS))


def texts_by_number(steps):
    """What was read, by the number that came with each text."""
    return {
        int(number): text
        for shares in steps
        for share in shares
        if share.rows
        for text, number in zip(share.batch[0], share.batch[-1], strict=True)
    }


ARRAYS = {
    "str": np.array(TEXTS[:4]),
    "str objects": np.array(TEXTS, object),
    "bytes": np.array([text.encode() for text in TEXTS[:4]]),
    "bytes objects": np.array([text.encode() for text in TEXTS], object),
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
@pytest.mark.parametrize("sees_files", [True, False])
def test_arrays_of_text(array, sees_files):
    engine = SimpleNamespace(name="local", one_machine=sees_files)
    feed = as_feed((array, np.arange(len(array))), engine=engine, text=True)
    assert isinstance(feed, SharedFeed) != sees_files
    found = texts_by_number(read(feed, 2))
    assert found == {number: text.encode() for number, text in enumerate(TEXTS[: len(array)])}


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(st.lists(st.binary(max_size=5), min_size=2, max_size=2), min_size=1, max_size=30),
    workers=st.integers(1, 4),
    batch_size=st.integers(2, 9),
)
def test_arrays_of_texts_for_each_row(rows, workers, batch_size):
    array = np.empty((len(rows), 2), object)
    array[:] = rows
    feed = as_feed(({"pair": array}, np.arange(len(rows))), engine=HERE, text=True)
    found = {
        int(number): pair.tolist()
        for shares in read(feed, workers, batch_size)
        for share in shares
        if share.rows
        for pair, number in zip(share.batch[0]["pair"], share.batch[1], strict=True)
    }
    assert found == dict(enumerate(rows))


FRAME = pd.DataFrame(
    {
        "object": pd.Series(TEXTS, dtype=object),
        "string": pd.Series(TEXTS, dtype="string"),
        "category": pd.Series(TEXTS).astype("category"),
        "bytes": [text.encode() for text in TEXTS],
        "pair": [[text, "!"] for text in TEXTS],
        "y": NUMBERS,
    }
)


def test_columns_of_a_frame():
    for name in ("object", "string", "category", "bytes"):
        feed = as_feed(FRAME, Columns((name,), ("y",)), engine=HERE, text=True)
        assert texts_by_number(read(feed, 2)) == {number: text.encode() for number, text in enumerate(TEXTS)}, name
    feed = as_feed(FRAME, Columns(("pair",), ("y",)), engine=HERE, text=True)
    assert texts_by_number(read(feed))[1].tolist() == [b"a", b"!"]


def test_a_rank_without_rows_is_given_texts_too():
    feed = as_feed((np.array(["one"]), np.zeros(1)), engine=HERE, text=True)
    (shares,) = read(feed, 2)
    assert [share.rows for share in shares] == [1, 0]
    assert {type(text) for share in shares for text in share.batch[0]} == {bytes}


BAD = {
    "not let in": (np.array(["a"]), False, "features and labels must be numbers, but there is an array of type <U1"),
    "missing": (np.array(["a", None], object), True, "there is a missing value in it"),
    "nan": (np.array(["a", np.nan], object), True, "there is a missing value in it"),
    "numbers": (np.array(["a", 3], object), True, "there is a int in it"),
}


@pytest.mark.parametrize(("array", "text", "message"), BAD.values(), ids=BAD)
def test_arrays_that_are_refused(array, text, message):
    with pytest.raises(InvalidArgumentError, match=message):
        as_feed((array, np.zeros(len(array))), engine=HERE, text=text)


def test_columns_that_are_refused_are_named():
    columns = Columns(("word",), ("y",))
    frame = pd.DataFrame({"word": ["a", None], "y": [0, 1]})
    with pytest.raises(InvalidArgumentError, match="the column 'word' has 1 missing values"):
        as_feed(frame, columns, engine=HERE, text=True)
    with pytest.raises(InvalidArgumentError, match="the column 'word' holds text"):
        as_feed(frame.dropna(), columns, engine=HERE)


class Lengths:
    """Predicts the lengths of texts."""

    key = "lengths of texts"
    takes_text = True

    def load(self):
        def lengths(features):
            return np.vectorize(len, otypes=[np.float32])(features[0])

        return lengths


class Numbers(Lengths):
    key = "lengths of numbers"
    takes_text = False


@pytest.mark.engines("local")
def test_predict_on_arrays_and_frames(engine):
    array = np.array(["", "ab", "abc"], object)
    assert predict(array, Lengths(), 2).tolist() == [0, 2, 3]
    assert predict(pd.DataFrame({"word": array}), Lengths(), 2, ["word"]).tolist() == [0, 2, 3]
    assert predict(array[:0], Lengths(), 2).shape == (0,)
    with pytest.raises(InvalidArgumentError, match="the column 'word' holds text"):
        predict(pd.DataFrame({"word": array}), Numbers(), 2, ["word"])


def test_shards_of_text(engine):
    frames = XShards.from_placement(engine.place([[FRAME[:3]], [], [FRAME[3:]]]))
    feed = as_feed(frames, Columns(("object",), ("y",)), text=True)
    assert texts_by_number(read(feed, 2)) == {number: text.encode() for number, text in enumerate(TEXTS)}
    predicted = predict(frames, Lengths(), 4, ["object"]).collect()
    assert np.concatenate([shard["prediction"] for shard in predicted]).tolist() == list(map(len, TEXTS))


@pytest.mark.engines("spark")
def test_text_in_a_spark_frame(engine):
    session = OrcaContext.get_spark_session()
    rows = [(text, [text, "!"], bytearray(text.encode()), number) for number, text in enumerate(TEXTS)]
    df = session.createDataFrame(rows, "word string, pair array<string>, raw binary, y int").repartition(3)
    for name in ("word", "raw"):
        feed = as_feed(df, Columns((name,), ("y",)), text=True)
        assert texts_by_number(read(feed, 2)) == {number: text.encode() for number, text in enumerate(TEXTS)}
    pairs = texts_by_number(read(as_feed(df, Columns(("pair",), ("y",)), text=True)))
    assert pairs[2].tolist() == ["ünï".encode(), b"!"]
    predicted = {row.y: row.prediction for row in predict(df, Lengths(), 4, ["word"]).collect()}
    assert predicted == {number: len(text) for number, text in enumerate(TEXTS)}
    vectors = predict(df, Lengths(), 4, ["pair"], known_shapes={"pair": (2,)}).collect()
    assert {row.y: row.prediction[1] for row in vectors} == dict.fromkeys(range(len(TEXTS)), 1)
    for bad, message in ((df, "holds text"), (df.replace("a", None, "word"), "missing values")):
        with pytest.raises(InvalidArgumentError, match=f"the column 'word' .*{message}"):
            as_feed(bad, Columns(("word",), ("y",)), text=bad is not df)
