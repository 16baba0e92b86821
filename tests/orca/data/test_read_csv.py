"""read_csv on every engine, with both read backends."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from zoo.orca import OrcaContext
from zoo.orca.data.file import write_text
from zoo.orca.data.pandas import arrow_csv, blocks, read_csv
from zoo.orca.data.pandas.csv_files import read_as_pandas, read_by_rules
from zoo.orca.data.pandas.csv_reader import CsvReader
from zoo.orca.data.pandas.rules import parse_csv_rules
from zoo.orca.engine.local import LocalEngine
from zoo.orca.errors import InvalidArgumentError, PathNotFoundError


@pytest.fixture(params=["pandas", "spark"])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    OrcaContext.pandas_read_backend = request.param
    yield request.param
    OrcaContext.pandas_read_backend = "spark"


pandas_backend = pytest.mark.parametrize("backend", ["pandas"], indirect=True)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files: ids 0 to 6 and 7 to 13, with a number, a name and a gap in each."""
    for part in (0, 1):
        ids = np.arange(7) + 7 * part
        frame = pd.DataFrame({"id": ids, "sale": ids / 2, "name": [f"n{i}" for i in ids]})
        frame.loc[3, "sale"] = np.nan
        frame.to_csv(tmp_path / f"part-{part}.csv", index=False)
    (tmp_path / "_SUCCESS").touch()
    return tmp_path


def whole(folder: Path, **arguments: Any) -> pd.DataFrame:
    return pd.concat([pd.read_csv(path, **arguments) for path in sorted(folder.glob("*.csv"))], ignore_index=True)


def joined(shards: Any) -> pd.DataFrame:
    return pd.concat(shards.collect(), ignore_index=True)


def in_order(frame: pd.DataFrame, by: str) -> pd.DataFrame:
    return frame.sort_values(by, ignore_index=True)


def test_a_folder_of_two_files_gives_two_shards(engine, backend: str, folder: Path) -> None:
    shards = read_csv(str(folder))
    assert shards.num_partitions() == 2
    assert [len(shard) for shard in shards.collect()] == [7, 7]
    assert len(shards) == 14
    assert_frame_equal(in_order(joined(shards), "id"), whole(folder))


def test_a_list_and_a_single_file_are_read(engine, backend: str, folder: Path) -> None:
    files = [str(path) for path in sorted(folder.glob("*.csv"))]
    assert_frame_equal(in_order(joined(read_csv(files)), "id"), whole(folder))
    assert_frame_equal(read_csv(files[0]).collect()[0], pd.read_csv(files[0]))


@pandas_backend
def test_a_large_file_is_read_in_blocks(engine, backend, small_blocks, tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": range(400), "b": ['two\nlines, "quoted"'] * 400, "c": np.arange(400) / 8})
    frame.to_csv(tmp_path / "large.csv", index=False)
    shards = read_csv(str(tmp_path / "large.csv"))
    assert len(shards.collect()) > 4
    assert shards.num_partitions() <= engine.cores
    assert_frame_equal(joined(shards), frame)


@pandas_backend
def test_dtypes_agree_over_blocks_and_files(engine, backend, tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("code,count,flag\n007,1,True\n008,2,False\n")
    (tmp_path / "2.csv").write_text("code,count,flag\nx9,1.5,True\n,,\n")
    first, second = read_csv(str(tmp_path)).collect()
    assert first["code"].tolist() == ["007", "008"]
    assert first["count"].tolist() == [1.0, 2.0]
    assert first.dtypes.tolist() == second.dtypes.tolist() == [object, np.dtype(float), object]
    assert first["flag"].tolist() == [True, False]


@pandas_backend
def test_no_more_partitions_than_cores_with_the_pandas_backend(engine, backend, tmp_path: Path) -> None:
    for part in range(engine.cores + 3):
        (tmp_path / f"{part:02}.csv").write_text(f"a\n{part}\n")
    shards = read_csv(str(tmp_path))
    assert shards.num_partitions() == engine.cores
    assert [shard["a"].tolist() for shard in shards.collect()] == [[part] for part in range(engine.cores + 3)]


@pandas_backend
def test_pandas_arguments_go_to_pandas(engine, backend, folder: Path) -> None:
    options = {"index_col": "id", "usecols": ["id", "sale"], "dtype": {"sale": "float32"}}
    expected = [pd.read_csv(path, **options) for path in sorted(folder.glob("*.csv"))]  # type: ignore[call-overload]
    for shard, frame in zip(read_csv(str(folder), **options).collect(), expected, strict=True):
        assert_frame_equal(shard, frame)


@pandas_backend
def test_an_unparsable_file_raises_pandas_error_at_once(engine, backend, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n1,2,3\n")
    with pytest.raises(pd.errors.ParserError, match="Expected 2 fields in line 3, saw 3"):
        read_csv(str(tmp_path / "bad.csv"))


def test_a_missing_path_is_named(engine, backend: str, tmp_path: Path) -> None:
    words = {"spark": "Path does not exist", "pandas": "No such file or directory"}
    with pytest.raises(PathNotFoundError, match=words[backend]):
        read_csv(str(tmp_path / "none.csv"))


@pandas_backend
def test_chunks_are_refused(engine, backend, folder: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="chunksize"):
        read_csv(str(folder), chunksize=3)


@pandas_backend
def test_compressed_files_are_read_whole(engine, backend, small_blocks, tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.csv.gz", "wt") as file:
        file.write("a,b\n" + "1,x\n" * 2000)
    (shard,) = read_csv(str(tmp_path)).collect()
    assert (len(shard), shard["b"].unique().tolist()) == (2000, ["x"])


# --- the rules of the Spark backend


def test_without_header_columns_are_numbered_texts(engine, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,x\n2,y\n")
    (shard,) = read_csv(str(tmp_path / "a.csv"), header=None).collect()
    assert_frame_equal(shard, pd.DataFrame({"0": [1, 2], "1": ["x", "y"]}))


def test_names_replace_no_header_or_the_header(engine, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,x\n2,y\n")
    (shard,) = read_csv(str(tmp_path / "a.csv"), names=["n", "s"]).collect()
    assert_frame_equal(shard, pd.DataFrame({"n": [1, 2], "s": ["x", "y"]}))
    (shard,) = read_csv(str(tmp_path / "a.csv"), names=["n", "s"], header=0).collect()
    assert_frame_equal(shard, pd.DataFrame({"n": [2], "s": ["y"]}))


def test_names_as_a_schema_set_types(engine, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,007,1\n2,008,2\n")
    (shard,) = read_csv(str(tmp_path / "a.csv"), names="n int, s string, d double").collect()
    assert_frame_equal(shard, pd.DataFrame({"n": [1, 2], "s": ["007", "008"], "d": [1.0, 2.0]}))


@pytest.mark.parametrize(
    "usecols", [["sale", "id"], [1, 0], lambda name: name != "name"], ids=["names", "ints", "callable"]
)
def test_usecols_choose_in_the_order_of_the_file(engine, folder: Path, usecols: Any) -> None:
    for shard in read_csv(str(folder), usecols=usecols).collect():
        assert list(shard.columns) == ["id", "sale"]


def test_names_with_usecols_name_the_chosen_or_all(engine, folder: Path) -> None:
    assert list(read_csv(str(folder), header=0, names=["x", "y"], usecols=[0, 2]).collect()[0].columns) == ["x", "y"]
    shards = read_csv(str(folder), header=0, names=["x", "y", "z"], usecols=["z"])
    assert sorted(joined(shards)["z"]) == sorted(whole(folder)["name"])
    with pytest.raises(InvalidArgumentError, match="Passed names did not match usecols"):
        read_csv(str(folder), header=0, names=["x"], usecols=[0, 2])
    with pytest.raises(ValueError, match="Duplicate names"):
        read_csv(str(folder), names=["x", "x"])


def test_dtype_by_name_by_index_and_for_all(engine, folder: Path) -> None:
    shard = read_csv(str(folder), dtype={"id": "float32", 1: str}).collect()[0]
    assert shard["id"].dtype == np.float32
    assert shard["sale"][1] in ("0.5", "4.0")
    assert set(read_csv(str(folder), usecols=[0], dtype=str).collect()[0]["id"].map(type)) == {str}
    with pytest.raises(InvalidArgumentError, match="column index to be set type is not in current dataframe"):
        read_csv(str(folder), usecols=[0], dtype={1: str})


def test_squeeze_and_index_col(engine, folder: Path) -> None:
    series = read_csv(str(folder), usecols=["name"], squeeze=True).collect()[0]
    assert isinstance(series, pd.Series)
    frame = read_csv(str(folder), index_col="id").collect()[0]
    assert (frame.index.name, list(frame.columns)) == ("id", ["sale", "name"])


def test_separator_comment_quote_and_escape(engine, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a;b\n#no\n'x;1';2\n'it\\'s';3\n")
    (shard,) = read_csv(str(tmp_path / "a.csv"), sep=";", comment="#", quotechar="'", escapechar="\\").collect()
    assert_frame_equal(shard, pd.DataFrame({"a": ["x;1", "it's"], "b": [2, 3]}))


def test_quoted_newlines_and_missing_values(engine, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('t,n,day\n"a\nb",1,2020-01-01\n"say ""hi""",,2020-01-02\nNA,3,\n')
    (shard,) = read_csv(str(tmp_path / "a.csv")).collect()
    expected = {"t": ["a\nb", 'say "hi"', "NA"], "n": [1, np.nan, 3], "day": ["2020-01-01", "2020-01-02", np.nan]}
    assert_frame_equal(shard, pd.DataFrame(expected))


def test_repeated_columns_are_numbered(engine, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,a,A\n1,2,3\n")
    assert list(read_csv(str(tmp_path / "a.csv")).collect()[0].columns) == ["a", "a.1", "A"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"use_cols": [0]}, "Did you mean 'usecols'.*pandas_read_backend"),
        ({"header": 3}, "header must be"),
        ({"parse_dates": ["a"]}, "takes only parse_dates=False"),
        ({"mangle_dupe_cols": False}, "takes only mangle_dupe_cols=True"),
        ({"comment": "##"}, "comment must be one character"),
        ({"usecols": ["nowhere"]}, "usecols names columns that the files do not have"),
        ({"names": ["x"]}, "number of names"),
        ({"names": "a int b"}, "Cannot read the schema"),
    ],
    ids=str,
)
def test_wrong_arguments_say_what_to_type(engine, folder: Path, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        read_csv(str(folder), **arguments)


def test_words_beyond_ascii_are_read_as_pandas_reads_them_and_broken_ones_refused(tmp_path: Path) -> None:
    reader, path = CsvReader({}), tmp_path / "words.csv"
    frame = pd.DataFrame({"id": np.arange(90_000), "word": np.resize(["Zürich", "naïve", "plain"], 90_000)})
    for part in (frame, frame[frame.word == "plain"].reset_index(drop=True)):
        part.to_csv(path, index=False)
        assert path.stat().st_size > arrow_csv.SMALL_BYTES
        assert_frame_equal(reader.read(*blocks.nominal_blocks(str(path), reader, blocks.BLOCK_BYTES)), part)
    frame.to_csv(path, index=False, encoding="latin-1")
    with pytest.raises(UnicodeDecodeError):
        reader.read(*blocks.nominal_blocks(str(path), reader, blocks.BLOCK_BYTES))


def test_files_on_s3(s3_bucket: str, small_blocks) -> None:
    frame = pd.DataFrame({"a": range(700), "b": ["x,\ny"] * 700})
    write_text(f"{s3_bucket}/in/a.csv", frame.to_csv(index=False))
    # An engine of its own: the processes of one that runs already do not know this bucket's address.
    with LocalEngine(cores=2) as engine:
        for shards in (
            read_as_pandas(engine, f"{s3_bucket}/in", {}),
            read_by_rules(engine, f"{s3_bucket}/in/a.csv", parse_csv_rules({})),
        ):
            assert len(shards.collect()) > 2
            assert_frame_equal(joined(shards), frame)
