"""The train, ingest and predict rows are well-formed, and their parts do what the figures rest on. No peer is run."""

from __future__ import annotations

import importlib
import inspect
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from benchmarks import ingest_row, keras_rows, learn_data, nnframes_rows, predict_rows, train_rows
from benchmarks.__main__ import main, narrow
from benchmarks.keras_train import has_learnt
from benchmarks.learn_job import Job, Mlp, read_marks, shuffled
from benchmarks.ranks import as_plain_processes
from benchmarks.row import Bar, Contender, Row, Settings
from benchmarks.runner import Outcome, Result, Spread
from benchmarks.table import render

FULL, QUICK = Settings(), Settings(quick=True)
JOB = Job(folder="", kind="small", rows=100, batch_size=32, epochs=3)


def learn_rows(settings):
    keras = [*keras_rows.train_rows(settings), *keras_rows.predict_rows(settings)]
    predict = [*predict_rows.rows(settings), *nnframes_rows.rows(settings)]
    return [*train_rows.rows(settings), ingest_row.row(settings), *predict, *keras]


def function_at(place):
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("settings", [FULL, QUICK], ids=["full", "quick"])
def test_rows_name_their_contenders_once_and_bars_refer_to_them(settings):
    for row in learn_rows(settings):
        names = [each.name for each in row.contenders]
        assert len(set(names)) == len(names)
        assert row.us is row.contenders[0]
        for bar in row.bars:
            assert set(bar.peers) <= set(names)
            assert (bar.us or row.us.name) in names


@pytest.mark.parametrize(
    "contender", [each for row in learn_rows(QUICK) for each in row.contenders], ids=lambda c: c.name
)
def test_contenders_can_be_called_as_the_row_says(contender):
    arguments = json.loads(json.dumps(contender.arguments))
    work = function_at(contender.work) if isinstance(contender.work, str) else contender.work
    inspect.signature(work).bind(**arguments)
    if "function" in arguments:  # of the ranks that it starts
        marks = {"marks": ""} if work.__name__ != "as_plain_processes" else {}
        inspect.signature(function_at(arguments["function"])).bind(**arguments["arguments"], **marks)
    if "job" in arguments:
        assert Job(**arguments["job"]).epochs > 1
    assert contender.environment["OMP_NUM_THREADS"] in ("1", "2")


def test_titles_tell_the_parameters_that_the_models_have():
    counts = {
        kind: sum(each.numel() for each in Job("", kind, 1, 1, 1).model().parameters())
        for kind in ("mlp", "small", "5m", "25m")
    }
    mlp, small = train_rows.rows(FULL)
    assert f"{counts['mlp']:,} parameters" in mlp.title
    assert f"{counts['small']:,} parameters" in small.title
    assert f"{counts['small']:,} parameters" in ingest_row.row(FULL).title
    for row, kind in zip(keras_rows.train_rows(FULL), ("5m", "25m"), strict=True):
        assert f"{counts[kind]:,} parameters" in row.title


def outcome(name, kind, rate, seconds):
    spreads = [Spread(each, each, each) for each in (seconds, seconds + 1.0, rate)]
    return Outcome(Contender(name, kind, ["true"]), spreads[0], spreads[1], 2**20, rate=spreads[2])


def test_rates_are_compared_the_other_way_round_and_shown_first():
    outcomes = (
        outcome("us", "us", 900.0, 4.0),
        outcome("us too", "us", 600.0, 2.0),
        outcome("loop", "limit", 1000.0, 2.0),
    )
    absent = Outcome(Contender("Lightning", "peer", ["true"]), note="not installed: lightning")
    bars = (
        Bar("0.9 of the loop", "loop", at_least=0.9),
        Bar("0.9 of the loop, too", "loop", at_least=0.9, us="us too"),
        Bar("no later than the loop", "loop", 1.0, us="us too", clock="seconds"),
    )
    row = Row("toy", "A toy", tuple(each.contender for each in (*outcomes, absent)), bars, clock="rate")
    result = Result(row, (*outcomes, absent), rounds=3)
    assert result.ratio("loop") == pytest.approx(0.9)
    assert [result.passes(bar) for bar in bars] == [True, False, True]
    lines = render(result, "Measured on a toy.").splitlines()
    assert [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:8] if "--" not in line] == [
        [
            "contender",
            "rows a second",
            "ratio to us",
            *["work alone, s", "whole process, s", "ratio to us", "of the limit", "peak memory"],
        ],
        ["**us**", "900 (900 to 900)", "1.00", "4 (4 to 4)", "5 (5 to 5)", "1.00", "0.90", "1 MB"],
        ["**us too**", "600 (600 to 600)", "1.50", "2 (2 to 2)", "3 (3 to 3)", "0.50", "0.60", "1 MB"],
        ["loop (the limit)", "1,000 (1,000 to 1,000)", "0.90", "2 (2 to 2)", "3 (3 to 3)", "0.50", "1.00", "1 MB"],
        ["Lightning", "not installed: lightning", "-", "-", "-", "-", "-", "-"],
    ]
    assert lines[9:12] == [
        "- bar: 0.9 of the loop → pass: 0.90 beside loop",
        "- bar: 0.9 of the loop, too → **miss**: 0.60 beside loop",
        "- bar: no later than the loop → pass: 1.00 beside loop",
    ]
    assert "the first ratio is that of rows a second, the second that of work alone, above 1 we are faster" in lines[-1]


def test_a_row_can_be_narrowed_to_some_contenders():
    row = narrow(ingest_row.row(QUICK), ["torchdistributor", "RANKS"])
    assert [each.name for each in row.contenders] == [ingest_row.DISTRIBUTOR, "torchrun ranks that read with pyarrow"]
    assert row.us is None
    empty = Result(row, tuple(Outcome(each, note="failed") for each in row.contenders), rounds=1)
    assert empty.passes(row.bars[0]) is None
    assert "| failed " in render(empty, "")


@pytest.mark.parametrize(
    ("arguments", "words"), [(["csv", "--only", "nobody"], "nobody"), (["--only", "a", "--write"], "whole tables")]
)
def test_narrowing_that_cannot_work_is_refused(arguments, words, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert words in capsys.readouterr().err


def test_the_loss_tells_rows_and_the_time_after_the_first_epoch(tmp_path):
    x, y = torch.ones(100, 20), torch.ones(100)
    loss = JOB.loss(str(tmp_path))
    for epoch in range(JOB.epochs):
        assert not list(tmp_path.iterdir())
        for features, targets in shuffled(x, y, JOB.batch_size, epoch):
            assert loss(features[:, 0], targets) == 0
    rate, rows = read_marks(JOB, str(tmp_path), ranks=1)
    assert rows == 300
    (mark,) = tmp_path.iterdir()
    assert rate == pytest.approx(200 * 7 / 8 / json.loads(mark.read_text())["seconds"])
    with pytest.raises(RuntimeError, match="1 of 2 ranks took 4 steps in each of 3 epochs"):
        read_marks(JOB, str(tmp_path))


def test_ranks_share_an_epoch_and_every_row_comes_once():
    x = torch.arange(101)
    parts = [list(shuffled(x, x, 16, 7, rank, 2)) for rank in range(2)]
    assert [len(features) for features, _ in parts[1]] == [16, 16, 16, 2]
    assert sorted(int(row) for part in parts for features, _ in part for row in features) == list(range(101))
    assert all(torch.equal(features, targets) for part in parts for features, targets in part)


def test_whether_something_was_learnt_is_seen(tmp_path):
    learn_data.make_arrays(tmp_path / "data", rows=64, width=20, classes=0)
    job = Job(str(tmp_path / "data"), "small", 64, 8, 2)
    x, y = job.arrays()
    assert (x.shape, x.dtype, y.shape) == ((64, 20), np.float32, (64,))
    model = job.model()
    assert not job.has_learnt(model.state_dict(), x, y)
    optimizer = job.optimizer(model)
    for _ in range(100):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(torch.as_tensor(x)), torch.as_tensor(y)).backward()
        optimizer.step()
    assert job.has_learnt(model.state_dict(), x, y)


def test_whether_a_keras_model_has_learnt_is_seen_by_its_weights():
    x, y = np.eye(4, dtype=np.float32), np.arange(4)
    lost = [np.zeros((4, 3), np.float32), np.zeros(3), np.zeros((3, 4), np.float32), np.zeros(4)]
    assert not has_learnt(lost, x, y)
    assert has_learnt([5 * np.eye(4), np.zeros(4), np.eye(4), np.zeros(4)], x, y)


def test_parquet_becomes_the_same_matrix_as_was_written(tmp_path):
    learn_data.make_columns(tmp_path / "columns", rows=80)
    learn_data.make_images(tmp_path / "images", rows=80)
    files = learn_data.files_of(str(tmp_path / "columns"))
    assert (
        sorted(
            learn_data.files_of(str(tmp_path / "columns"), 0, 2) + learn_data.files_of(str(tmp_path / "columns"), 1, 2)
        )
        == files
    )
    columns = pq.read_table(files[0])
    assert columns.column_names == [*learn_data.FEATURES, learn_data.LABEL]
    np.testing.assert_array_equal(learn_data.matrix_of(columns), columns.to_pandas()[learn_data.FEATURES].to_numpy())
    images = pq.read_table(learn_data.files_of(str(tmp_path / "images"))[0])
    np.testing.assert_array_equal(
        learn_data.matrix_of(images), np.stack(images.to_pandas()[learn_data.IMAGE].to_list())
    )
    (batch,) = images.to_batches()
    np.testing.assert_array_equal(learn_data.matrix_of(batch.slice(3)), learn_data.matrix_of(images)[3:])


def test_a_matrix_and_its_columns_are_the_same_to_the_model():
    model, x = Mlp(20, 64, 1), torch.rand(5, 20)
    assert model(x).shape == (5,)
    assert torch.equal(model(x), model(*x.unbind(dim=1)))


def test_what_plain_processes_return_is_added_up():
    report = as_plain_processes("builtins:dict", {"checksum": [1, 2.5], "rate": 10.0})
    assert (report.checksum, report.rate) == ([2, 5.0], 20.0)
    assert report.seconds > 0
