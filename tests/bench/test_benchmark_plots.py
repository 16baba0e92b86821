"""What a run leaves: figures in a file, a plot of them, the table of all bars; all made again without a run."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from benchmarks import __main__ as command
from benchmarks import plots, results
from benchmarks.overview import render_bars
from benchmarks.row import Bar, Contender, Row
from benchmarks.runner import Outcome, Result, Spread
from benchmarks.table import render

BARS = (
    Bar("1.5 times the peers", ("pandas", "Dask"), at_least=1.5),
    Bar("half the memory", "pandas", 0.5, clock="peak"),
)
SVG = "{http://www.w3.org/2000/svg}"


def outcome(name, kind, *seconds, peak=None, note=""):
    return Outcome(Contender(name, kind, ["true"]), Spread.of(seconds), Spread.of(seconds), peak, note)


OUTCOMES = (
    outcome("ours", "us", 1.0, 1.2, 1.1, peak=100),
    outcome("pandas", "peer", 2.0, 2.6, 2.2, peak=300),
    outcome("Dask", "peer", 9.0, 9.0, 9.0),
    outcome("Modin & co", "peer", note="failed"),
    outcome("polars", "limit", 0.1, 0.2, 0.11),
)
ROW = Row("toy", "A toy", tuple(each.contender for each in OUTCOMES), BARS)
RESULT = Result(ROW, OUTCOMES, rounds=3)


def test_a_plot_shows_every_contender_and_depends_on_nothing_but_the_figures(tmp_path):
    line = plots.draw(RESULT, tmp_path)
    first = (tmp_path / "toy.svg").read_bytes()
    assert (
        plots.draw(RESULT, tmp_path)
        == line
        == ("![A toy: how many times our time each contender needs](plots/toy.svg)")
    )
    assert (tmp_path / "toy.svg").read_bytes() == first
    assert len(first) < 30_000
    words = [text.text.strip() for text in ET.fromstring(first).iter(f"{SVG}text")]
    assert {each.contender.name for each in OUTCOMES} <= set(words)
    assert {"1.00", "2.00", "8.18", "0.10", "failed"} <= set(words)
    assert not any(mark in first for mark in (b"2026", b"dc:date", b"matplotlib.org"))


@pytest.mark.parametrize("outcomes", [OUTCOMES[:1], OUTCOMES[1:3]], ids=["nobody beside us", "not us"])
def test_where_there_is_nothing_to_compare_nothing_is_drawn(tmp_path, outcomes):
    row = replace(ROW, contenders=tuple(each.contender for each in outcomes))
    assert plots.draw(Result(row, outcomes, rounds=1), tmp_path) == ""
    assert not list(tmp_path.iterdir())


def test_figures_come_back_from_their_file_and_are_judged_by_the_bars_of_today(tmp_path):
    results.save(RESULT, "Measured on a toy.", "2026-01-02", tmp_path)
    (facts,) = results.kept(tmp_path).values()
    again = results.load(facts, [ROW])
    assert render(again, "Measured on a toy.") == render(RESULT, "Measured on a toy.")
    assert facts["bars"] == [
        {"text": "1.5 times the peers", "figure": "2.00 (2.00 to 2.17) beside pandas", "verdict": "pass"},
        {"text": "half the memory", "figure": "0.33 beside pandas", "verdict": "pass"},
    ]
    stricter = replace(ROW, bars=(Bar("3 times pandas", "pandas", at_least=3),))
    assert results.load(facts, [stricter]).passes(stricter.bars[0]) is False
    assert results.load(facts, []).row.bars == ()


def test_the_table_of_all_bars_tells_figures_verdicts_days_and_what_was_never_measured(tmp_path):
    results.save(RESULT, "Measured on a toy.", "2026-01-02", tmp_path)
    results.keep(
        {"name": "growth", "day": "2026-01-03", "bars": [{"text": "flat", "figure": "1.4", "verdict": "**miss**"}]},
        tmp_path,
    )
    other = replace(ROW, name="other", bars=(Bar("ahead", "pandas", at_least=1),))
    text = render_bars([ROW, other], results.kept(tmp_path))
    assert text.splitlines()[0] == "2 of 4 bars are cleared, 1 are missed; the others were not judged."
    assert [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[4:]] == [
        ["toy", "1.5 times the peers", "2.00 (2.00 to 2.17) beside pandas", "pass", "2026-01-02"],
        ["toy", "half the memory", "0.33 beside pandas", "pass", "2026-01-02"],
        ["other", "ahead", "-", "not measured", "-"],
        ["growth", "flat", "1.4", "**miss**", "2026-01-03"],
    ]


def test_replot_makes_page_and_plots_again_without_a_run(tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    page.write_text("".join(f"<!-- bench:{name} -->\n<!-- /bench -->\n" for name in ("bars", "toy")))
    for module, name in ((results, "FOLDER"), (plots, "FOLDER"), (command, "PAGE")):
        monkeypatch.setattr(module, name, page if name == "PAGE" else tmp_path / "kept")
    monkeypatch.setattr(command, "rows", lambda settings: [ROW])
    results.save(RESULT, "Measured on a toy.", "2026-01-02")
    kept = (tmp_path / "kept" / "toy.json").read_text()
    assert command.main(["--replot"]) == 0
    assert "toy" in capsys.readouterr().out
    assert "](plots/toy.svg)" in page.read_text()
    assert "| toy | 1.5 times the peers" in page.read_text()
    assert (tmp_path / "kept" / "toy.svg").exists()
    assert json.loads((tmp_path / "kept" / "toy.json").read_text()) == json.loads(kept)
