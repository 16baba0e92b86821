"""The growth and memory curves are well-formed, and their bars and tables say what was measured."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json

import pytest
from benchmarks import growth, growth_gang, growth_memory, growth_rows, growth_shards
from benchmarks.growth import Column, Curve, CurveResult, GrowthBar, Point
from benchmarks.row import Settings

CURVES = (growth_rows, growth_shards, growth_gang, growth_memory)
QUICK = Settings(quick=True)


def toy(**changes):
    points = tuple(Point("us", size, "toy:work") for size in (10, 100, 1000))
    bars = (
        GrowthBar("flat", growth.ratio("marginal", "us", 1000, 100), 1.3),
        GrowthBar("of others", growth.ratio("marginal", "them", 1000, 100), 1.3),
    )
    columns = (Column("seconds", "seconds", 1), Column("marginal", "one more", 2))
    curve = Curve(
        "toy", "A toy", "rows", points, columns, bars, "seconds", growth.add_marginal("seconds", "marginal", 1)
    )
    return dataclasses.replace(curve, **changes)


def result_of(seconds, notes=None, **changes):
    measured = {"us": {size: {"seconds": each} for size, each in seconds.items()}}
    curve = toy()
    curve.derive(measured)
    return CurveResult(curve, measured, notes or {}, 1, **changes)


@pytest.mark.parametrize("settings", [Settings(), QUICK], ids=["full", "quick"])
def test_points_can_be_called_and_bars_refer_to_them(settings):
    for module in CURVES:
        curve = module.curve(settings)
        assert len({point.name for point in curve.contenders}) == len(curve.contenders)
        assert curve.drawn in {column.key for column in curve.columns}
        for point in curve.contenders:
            place, _, name = point.work.partition(":")
            arguments = json.loads(json.dumps(point.arguments | {"size": point.size}))
            inspect.signature(getattr(importlib.import_module(place), name)).bind(**arguments)
        keys = {column.key for column in curve.columns} | {"report_cpu"}
        ones = {series: {} for series in (point.series for point in curve.contenders)}
        for point in curve.contenders:
            ones[point.series][point.size] = dict.fromkeys(keys, 1.0)
        assert all(CurveResult(curve, ones, {}, 1).figure(bar) is not None for bar in curve.bars)


def test_what_one_more_costs_is_without_the_start_and_judged_by_sizes():
    flat, steep = result_of({10: 5.1, 100: 6.0, 1000: 15.0}), result_of({10: 5.1, 100: 6.0, 1000: 30.0})
    assert flat.measured["us"][1000]["marginal"] == pytest.approx(0.01)
    assert [flat.passes(bar) for bar in flat.row.bars] == [True, None]
    assert [steep.passes(bar) for bar in steep.row.bars] == [False, None]
    assert (flat.is_good, steep.is_good) == (True, False)
    assert result_of({10: 5.1, 100: 6.0, 1000: 30.0}, quick=True).is_good


def test_the_table_shows_figures_failures_and_verdicts():
    text = growth.render(result_of({10: 5.1, 100: 6.0}, {"us, 1,000": "failed"}), "Measured on a toy.")
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| us")]
    assert cells == [["us", "10", "5.1", "-"], ["us", "100", "6.0", "0.01"], ["us", "1,000", "failed", "-"]]
    assert "- bar: flat → not judged" in text
    assert text.endswith("Measured on a toy.")


def test_what_was_kept_is_judged_and_drawn_again(tmp_path):
    result = result_of({10: 5.1, 100: 6.0, 1000: 30.0})
    kept = json.loads(json.dumps(growth.facts_of(result, "on a toy", "2026-01-01")))
    assert kept["bars"][0]["verdict"] == "**miss**"
    again = growth.load(kept, toy())
    assert growth.render(again, "on a toy") == growth.render(result, "on a toy")
    for name in ("one", "two"):
        assert growth.draw(again, tmp_path / name).endswith("(plots/toy.svg)")
    assert (tmp_path / "one" / "toy.svg").read_bytes() == (tmp_path / "two" / "toy.svg").read_bytes()


def test_a_simulated_gang_goes_through_all_of_its_phases():
    figures = growth_gang.gang(size=6, stay=0.3)
    assert figures["messages"] > 0
    assert {column.key for column in growth_gang.curve(QUICK).columns} <= set(figures)
