"""A worker that dies at any step of a fit of a graph changes nothing: all values end as if it had not."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
from tf_graphs import ROWS, classifier, placed, v1, values_in

from learning import Rows
from zoo.orca.learn.callbacks import Callback
from zoo.orca.learn.optimizers import Adam
from zoo.orca.learn.tf.estimator import Estimator

# Of 4 steps each.
EPOCHS, BATCH = 3, 5
CASES = {
    "local": ("orca", [(1, 6)]),
    "spark": ("tensorflow", [(0, 9)]),
    "ray": ("tensorflow", [(1, 4)]),
}


class Mortal(Callback):
    """Kills a rank after some steps, each of the times once."""

    def __init__(self, folder, deaths):
        self.folder, self.deaths = str(folder), deaths

    def on_step_end(self, run):
        mark = Path(self.folder) / f"{run.rank}-{run.step}"
        if (run.rank, run.step) in self.deaths and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def optimizer_named(name):
    return Adam(0.05) if name == "orca" else v1.train.AdamOptimizer(0.05)


def fitted(engine, name, callbacks=()):
    """All values and the history after a fit of a graph that has everything: dropout, running means, a table."""
    net = classifier(words=True, dropout=True, norm=True)
    est = Estimator.from_graph(
        inputs=net.x, labels=net.y, loss=net.loss, metrics={"accuracy": net.accuracy}, num_workers=2,
        optimizer=optimizer_named(name)
    )  # fmt: skip
    data = placed(engine, Rows(ROWS))
    feeds = {net.rate.ref(): (0.4, 0.0), net.is_training.ref(): (True, False)}
    est.fit(
        data,
        EPOCHS,
        BATCH,
        validation_data=data,
        checkpoint_trigger="3ba",
        feed_dict=feeds,
        callbacks=list(callbacks),
    )
    values, result = values_in(est.sess), est.result_
    est.shutdown()
    return values, result


def test_values_and_figures_are_those_of_an_undisturbed_fit(engine, tmp_path):
    name, deaths = CASES[engine.name]
    expected, calm = fitted(engine, name)
    values, result = fitted(engine, name, [Mortal(tmp_path, deaths)])
    assert sorted(values) == sorted(expected)
    for variable, value in expected.items():
        assert np.array_equal(values[variable], value), variable
    assert result.history.equals(calm.history)
    assert (calm.restarts, result.restarts) == (0, len(deaths))
