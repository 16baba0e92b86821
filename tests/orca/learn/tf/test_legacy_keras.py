"""tf_keras models in graph mode: trained in place over several workers, as tf_keras itself trains them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tf_graphs import tf

from zoo.orca.errors import NotOfferedError
from zoo.orca.learn.tf.estimator import Estimator

SCRIPT = Path(__file__).parent / "legacy_keras_run.py"


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What the script saw; a process of its own, since graph mode cannot be left again."""
    folder = tmp_path_factory.mktemp("legacy")
    done = subprocess.run(
        [sys.executable, SCRIPT, folder], check=False, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(SCRIPT.parent), str(SCRIPT.parents[3])])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_model_is_trained_as_keras_would(seen):
    assert seen["is the model"]
    assert seen["equals plain Keras"]
    assert seen["iterations"] == 2
    assert seen["rates"] == pytest.approx([0.1 * 0.5**step for step in range(6)])
    assert seen["statistics move"]
    assert seen["named iterations"] == seen["wrapped iterations"] == 2


@pytest.mark.parametrize("when", ["evaluates before fit", "evaluates"])
def test_figures_are_those_of_keras_under_the_published_names(seen, when):
    ours, (loss, accuracy) = seen[when]
    assert ours == {"loss": pytest.approx(loss), "acc Top1Accuracy": pytest.approx(accuracy)}


def test_what_is_saved_comes_back(seen):
    assert seen["predicts"]
    assert seen["summaries"] == [2, 2]
    assert seen["names"] == ["loss", "mae MAE"]
    for what in ("loaded", "weights, by name: False", "weights, by name: True", "checkpoint"):
        assert seen[what], what


def test_what_cannot_work_is_said(seen):
    uncompiled, optimizer, shapeless, no_optimizer, ending, clipping = seen["errors"]
    assert "is not compiled" in uncompiled
    assert 'tf_keras.optimizers.legacy.Adam(...), or by name: optimizer="adam"' in optimizer
    assert "has no inputs yet" in shapeless
    assert "optimizer must be an orca optimizer" in no_optimizer
    assert ".h5" in ending
    assert clipping.startswith("PreconditionError")


def test_a_model_of_eager_mode_is_told_what_to_do():
    import tf_keras

    assert tf.executing_eagerly()
    model = tf_keras.Sequential([tf_keras.layers.Input((4,)), tf_keras.layers.Dense(1)])
    with pytest.raises(NotOfferedError, match="disable_eager_execution"):
        Estimator.from_keras(model)
