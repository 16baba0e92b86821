"""How far outputs are from those they should be, and how that is told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from zoo.orca.learn.export.agreement import Agreement, compare
from zoo.orca.learn.export.report import ExportReport, Int8Loss, Tensor

NUMBERS = st.floats(-1e6, 1e6, width=32)
OUTPUTS = arrays(np.float32, array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=5), elements=NUMBERS)


@given(OUTPUTS)
def test_what_is_equal_agrees(output):
    assert compare([output], [output.copy()]).relative == 0


@given(OUTPUTS, st.floats(1e-3, 1e3), st.data())
def test_a_difference_is_found_wherever_it_is(output, by, data):
    place = data.draw(st.integers(0, output.size - 1))
    expected = output.astype(np.float64)
    found = expected.copy()
    found.flat[place] += by
    agreement = compare([expected], [found])
    assert agreement.difference == pytest.approx(by, rel=1e-6)
    scale = np.abs(expected).max() or 1.0
    assert agreement.relative == pytest.approx(agreement.difference / scale, abs=1e-11)
    assert agreement.within(agreement.relative)
    assert not agreement.within(agreement.relative / 2)


@pytest.mark.parametrize(
    "found",
    [
        [np.array([[1.0, np.nan]])],
        [np.array([[1.0, np.inf]])],
        [np.array([1.0, 2.0])],
        [np.array([[1.0, 2.0]]), np.array([0.0])],
    ],
)
def test_what_cannot_be_compared_does_not_agree(found):
    assert not compare([np.array([[1.0, 2.0]])], found).within(1e9)


def test_nan_where_nan_should_be():
    output = np.array([[np.nan, np.inf, 3.0]])
    assert compare([output], [output]).relative == 0


def test_a_report_reads_well():
    report = ExportReport(
        format="openvino",
        path="m.xml",
        files=("m.xml", "m.bin"),
        size=12_345,
        by="torch.export",
        runtime="OpenVINO 2026.4",
        inputs=(Tensor("x", "float32", (None, 6)),),
        outputs=(Tensor("output", "float32", (None, 2)),),
        agreement=Agreement(32, (32, 1), 1.5e-7, 3e-8),
        tolerance=1e-4,
        int8=Int8Loss(300, {"accuracy": 0.97}, {"accuracy": 0.965}, Agreement(300, (300,), 0.02, 0.01), 0.99, 3.8),
    )
    assert repr(report).splitlines() == [
        "✓ written  m.xml, m.bin (12.3 kB), by torch.export",
        "✓ inputs   x: float32 (?, 6)",
        "✓ outputs  output: float32 (?, 2)",
        "✓ agrees   OpenVINO 2026.4 differs from est.predict by 1.5e-07 at most, 3.0e-08 of the largest output "
        "(tolerance 1e-04), in batches of 1 and 32 rows",
        "✓ int8     accuracy 0.97 -> 0.965 (-0.005), the same choice for 99.0% of the rows, outputs differ by 1.0e-02 "
        "of the largest, over 300 rows; 3.8 times smaller",
    ]
    assert report.int8.loss["accuracy"] == pytest.approx(-0.005)
