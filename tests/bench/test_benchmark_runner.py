"""The benchmarks' arithmetic and words: turns, medians, ratios, verdicts and tables. No time is asserted."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from functools import partial

import pytest
from benchmarks import csv_data, csv_row
from benchmarks.__main__ import main, rows, select
from benchmarks.process import ContenderFailedError, missing, run
from benchmarks.row import ROOT, Bar, Contender, Row, Settings
from benchmarks.runner import DisagreementError, Outcome, Result, Spread, check_agreement, compare, in_turn, measure
from benchmarks.table import render, write

# A command that reports as a contender does, without importing anything of ours.
SCRIPT = "import json, os; open(os.environ['BENCH_REPORT'], 'a').write(json.dumps({facts}) + '\\n')"


def contender(name, kind="peer", **facts):
    return Contender(name, kind, [sys.executable, "-c", SCRIPT.format(facts=facts)])


def result(*outcomes, clock="seconds", bars=(), quick=False):
    row = Row("toy", "A toy", tuple(outcome.contender for outcome in outcomes), bars, clock)
    return Result(row, outcomes, rounds=3, quick=quick)


US = Outcome(Contender("us", "us", ["true"]), Spread(2.0, 1.5, 2.5), Spread(3.0, 2.5, 3.5), peak=100 * 2**20)
PANDAS = Outcome(Contender("pandas", "peer", ["true"]), Spread(4.0, 3.0, 5.0), Spread(4.5, 4.0, 5.0), peak=2048 * 2**20)


def test_every_round_starts_with_another_contender():
    assert ["".join(in_turn("ABC", round_)) for round_ in range(4)] == ["ABC", "BCA", "CAB", "ABC"]
    assert in_turn([], 3) == []


def test_a_spread_is_the_median_and_the_ends():
    assert Spread.of([5.0, 1.0, 3.0]) == Spread(3.0, 1.0, 5.0)
    assert Spread.of([1.0, None, 2.0]) == Spread(1.5, 1.0, 2.0)
    assert Spread.of([None, None]) is None


def test_a_ratio_is_their_time_over_ours_by_the_rows_clock():
    assert result(US, PANDAS).ratio("pandas") == 2.0
    assert result(US, PANDAS, clock="whole").ratio("pandas") == 1.5


@pytest.mark.parametrize(("at_most", "expected"), [(1 / 1.6, True), (0.5, True), (1 / 2.1, False)])
def test_a_bar_is_on_our_time_against_theirs(at_most, expected):
    assert result(US, PANDAS).passes(Bar("fast", "pandas", at_most)) is expected


@pytest.mark.parametrize(
    ("bar", "expected"),
    [
        (Bar("best", ("pandas", "Dask"), at_least=1.5), (True, 1.5, "Dask")),
        (Bar("best", ("pandas", "Dask"), at_least=1.6), (False, 1.5, "Dask")),
        (Bar("lost", ("pandas", "polars"), at_least=0.1), (None, None, "")),
        (Bar("memory", "pandas", at_most=0.05, clock="peak"), (True, 100 / 2048, "pandas")),
        (Bar("memory", "pandas", at_most=0.04, clock="peak"), (False, 100 / 2048, "pandas")),
        (Bar("another", "us", at_least=0.4, us="pandas"), (True, 0.5, "us")),
        (Bar("median", "Dask", at_least=1.7), (False, 1.5, "Dask")),
        (Bar("worst round", "Dask", at_least=1.7, within_spread=True), (True, 1.5, "Dask")),
    ],
    ids=lambda value: value.text if isinstance(value, Bar) else "",
)
def test_bars_are_about_the_best_of_several_about_memory_and_about_any_of_ours(bar, expected):
    dask = Outcome(Contender("Dask", "peer", ["true"]), Spread(3.0, 2.0, 3.5), Spread(9.0, 9.0, 9.0), peak=2**20)
    polars = Outcome(Contender("polars", "limit", ["true"]), note="failed")
    judged = result(US, PANDAS, dask, polars).judge(bar)
    assert (judged.passes, judged.figure and pytest.approx(judged.figure.median), judged.peer) == expected


def test_a_bar_asks_for_one_thing():
    with pytest.raises(ValueError, match="either at_most or at_least: 'fast'"):
        Bar("fast", "pandas")
    with pytest.raises(ValueError, match="either"):
        Bar("fast", "pandas", at_most=1, at_least=1)


def test_a_ratio_spreads_over_the_rounds_that_ran_side_by_side():
    ours, theirs = Spread.of([1.0, 2.0, 4.0]), Spread.of([3.0, 4.0, 10.0])
    assert compare(ours, theirs, "seconds") == Spread(2.0, 2.0, 3.0)
    assert compare(theirs, ours, "rate") == Spread(2.0, 2.0, 3.0)


def test_the_part_of_the_limits_speed_is_told():
    limit = Outcome(Contender("polars", "limit", ["true"]), Spread.of([1.0]), Spread.of([1.0]))
    measured = result(US, PANDAS, limit)
    assert [measured.of_limit(each).median for each in measured.outcomes] == [0.5, 0.25, 1.0]
    assert result(US, PANDAS).of_limit(US) is None


def test_a_quick_run_judges_nothing():
    assert result(US, PANDAS, quick=True).passes(Bar("fast", "pandas", 1.0)) is None


def test_the_table_shows_medians_spreads_ratios_memory_and_verdicts():
    absent = Outcome(Contender("polars", "limit", ["true"]), note="not installed: polars")
    bars = (
        Bar("ahead of pandas", "pandas", at_most=1),
        Bar("3 times pandas", "pandas", at_least=3),
        Bar("near", "polars", at_most=9),
    )
    assert render(result(US, PANDAS, absent, bars=bars), "Measured on a toy.").splitlines() == [
        "**A toy**",
        "",
        "| contender          | work alone, s         | whole process, s | ratio to us | of the limit | peak memory |",
        "|--------------------|-----------------------|------------------|-------------|--------------|-------------|",
        "| **us**             | 2 (1.5 to 2.5)        | 3 (2.5 to 3.5)   | 1.00        | -            | 100 MB      |",
        "| pandas             | 4 (3 to 5)            | 4.5 (4 to 5)     | 2.00        | -            | 2,048 MB    |",
        "| polars (the limit) | not installed: polars | -                | -           | -            | -           |",
        "",
        "- bar: ahead of pandas → pass: 0.50 beside pandas",
        "- bar: 3 times pandas → **miss**: 2.00 beside pandas",
        "- bar: near → not judged",
        "",
        "Median (least to most) of 3 rounds in turn; the ratio is that of work alone, above 1 we are faster; "
        "of the limit's speed, by work alone. Measured on a toy.",
    ]


def test_a_table_is_written_between_its_marks_and_nowhere_else(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- bench:one -->\nold\n<!-- /bench -->\nb\n<!-- bench:two -->\n<!-- /bench -->\n")
    write(page, "one", r"new \1")
    write(page, "two", "second")
    assert page.read_text() == (
        "a\n<!-- bench:one -->\nnew \\1\n<!-- /bench -->\nb\n<!-- bench:two -->\nsecond\n<!-- /bench -->\n"
    )
    with pytest.raises(ValueError, match="no marks for three"):
        write(page, "three", "x")


def test_every_row_has_its_place_in_the_page():
    page = (ROOT / "docs" / "performance.md").read_text()
    assert [row.name for row in rows(Settings()) if f"<!-- bench:{row.name} -->\n" not in page] == []


def test_results_must_agree_up_to_the_order_of_addition():
    check_agreement([("a", [3, 0.1 + 0.2, "x"]), ("b", [3, 0.3, "x"]), ("c", [3, 0.3, "x"])])
    with pytest.raises(DisagreementError, match=r"b came to \[3\], but c to \[4\]"):
        check_agreement([("a", [3]), ("b", [3]), ("c", [4])])


def test_a_row_is_measured_in_turn_with_absent_and_failing_contenders_shown():
    said = []
    row = Row(
        "toy",
        "A toy",
        (
            contender("us", "us", seconds=1.0, checksum=[7]),
            contender("peer", seconds=2.0, checksum=[7]),
            dataclasses.replace(contender("absent"), needs=("no_such_package",)),
            Contender("broken", "peer", [sys.executable, "-c", "raise SystemExit('out of luck')"]),
        ),
    )
    measured = measure(row, Settings(rounds=2), said.append)
    assert [line.rpartition(" ")[0].rpartition(" ")[0] for line in said if "round" in line] == [
        "toy, round 0: us",
        "toy, round 0: peer",
        "toy, round 1: peer",
        "toy, round 1: us",
        "toy, round 2: us",
        "toy, round 2: peer",
    ]
    assert any("out of luck" in line for line in said)
    assert [outcome.note for outcome in measured.outcomes] == ["", "", "not installed: no_such_package", "failed"]
    assert measured.ratio("peer") == 2.0
    assert measured.ratio("broken") is None


def test_a_row_whose_results_differ_is_refused():
    row = Row("toy", "A toy", (contender("us", "us", checksum=[1]), contender("peer", checksum=[2])))
    with pytest.raises(DisagreementError, match="peer"):
        measure(row, Settings(quick=True), lambda line: None)


def test_the_lines_of_several_processes_are_one_report():
    line = "import os; open(os.environ['BENCH_REPORT'], 'a').write('{\"checksum\": [1]}\\n{\"checksum\": [0]}\\n')"
    done = run(Contender("two", "peer", [sys.executable, "-c", line]), watch_memory=True)
    assert (done.checksum, done.seconds) == ([0, 1], None)
    assert done.whole > 0


def test_a_contender_that_reports_nothing_has_failed():
    with pytest.raises(ContenderFailedError, match="silent ended with code 0"):
        run(Contender("silent", "peer", [sys.executable, "-c", "pass"]), watch_memory=False)


def test_names_choose_rows_and_groups():
    known = rows(Settings())
    assert [row.name for row in select(known, ["start"])] == ["start-bare", "start-torch", "start-ray", "start-spark"]
    assert [row.name for row in select(known, ["csv", "gang-ray"])] == ["csv", "gang-ray"]
    assert select(known, []) == known
    with pytest.raises(ValueError, match=r"no benchmark is called 'cvs'; there are csv, start-bare"):
        select(known, ["cvs"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--quick", "--write"], "leave out one"),
        (["--rounds", "0"], "at least 1"),
        (["--replot", "--quick"], "measures nothing"),
    ],
)
def test_arguments_that_cannot_work_are_refused(arguments, words, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert words in capsys.readouterr().err


def test_data_is_the_same_every_time_and_made_once(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_data, "table", partial(csv_data.table, rows=50))
    csv_data.make(tmp_path / "one", 2)
    csv_data.make(tmp_path / "two", 2)
    first = {file.name: file.read_bytes() for file in (tmp_path / "one").iterdir()}
    assert first == {file.name: file.read_bytes() for file in (tmp_path / "two").iterdir()}
    assert first["part-00.csv"].startswith(b"id,quantity,price,discount,latitude,longitude,city,day\n0,")
    assert first["part-00.csv"] != first["part-01.csv"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_contenders_of_the_csv_row_agree_on_a_little_data(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_data, "table", partial(csv_data.table, rows=2000))
    settings = Settings(quick=True, data=tmp_path)
    row = csv_row.row(settings)
    light = tuple(each for each in row.contenders if not {"pyspark", "ray"} & set(each.needs))
    measured = measure(dataclasses.replace(row, contenders=light), settings, lambda line: None)
    notes = {outcome.contender.name: outcome.note for outcome in measured.outcomes}
    assert notes == {each.name: f"not installed: {each.needs[0]}" if missing(each) else "" for each in light}


def test_the_embedded_gang_and_its_peer_tell_the_same_ranks():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "start-bare", "--quick"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "| **embedded engine**" in done.stdout
    assert "→ not judged" in done.stdout
