"""Callbacks through real fits: when each hook is called, how they stop a fit, and how it goes on."""

from __future__ import annotations

import os
import time

import pytest
from nets import REGRESSION, ROWS, regression, weights

from zoo.orca.engine import gang
from zoo.orca.learn.callbacks import Callback, EarlyStopping, LRMonitor, ModelCheckpoint, Throughput

pytestmark = pytest.mark.engines("local")
BATCH = 8
STEPS = ROWS // BATCH


class Stopping(Callback):
    """Stops in a hook, when so many steps are done."""

    def __init__(self, hook, step):
        self._hook, self._step = hook, step
        setattr(self, hook, self._stop)

    def __reduce__(self):
        return Stopping, (self._hook, self._step)

    def _stop(self, run):
        if run.step >= self._step:
            run.stop(f"{self._hook} at {run.step}")


class Files(Callback):
    """Looks for the checkpoint, on every rank."""

    def on_checkpoint(self, run):
        if not os.path.isfile(run.checkpoint):
            raise FileNotFoundError(run.checkpoint)


def ray_kind(**options):
    return regression("torch_distributed", **({"num_workers": 2} | options))


@pytest.mark.parametrize(
    ("hook", "steps"),
    [("on_fit_start", 0), ("on_epoch_start", STEPS), ("on_step_end", STEPS + 1), ("on_epoch_end", STEPS)],
)
def test_every_hook_can_stop(engine, hook, steps):
    est = ray_kind()
    est.fit(REGRESSION, epochs=4, batch_size=BATCH, callbacks=[Stopping(hook, steps)])
    assert est.result_.stopped == f"{hook} at {steps}"
    assert est.result_.rows == steps * BATCH


def test_a_checkpoint_is_there_when_its_hook_is_called(engine, tmp_path):
    est = ray_kind(model_dir=str(tmp_path))
    est.fit(REGRESSION, epochs=2, batch_size=BATCH, checkpoint_trigger="1ba", callbacks=[Files()])
    stopped = ray_kind(model_dir=str(tmp_path))
    stopped.fit(
        REGRESSION, epochs=2, batch_size=BATCH, checkpoint_trigger="1ba", callbacks=[Stopping("on_checkpoint", 2)]
    )
    assert stopped.result_.rows == 2 * BATCH


def test_a_fit_that_was_stopped_in_an_epoch_runs_that_epoch_again(engine, tmp_path):
    seen = []

    class Rows(Callback):
        on_driver = True

        def on_epoch_end(self, run):
            seen.append((run.epoch, run.rows_in_epoch))

    est = ray_kind(model_dir=str(tmp_path))
    est.fit(REGRESSION, epochs=3, batch_size=BATCH, callbacks=[Stopping("on_step_end", STEPS + 1), Rows()])
    assert seen == [(1, ROWS), (2, BATCH)]
    est.fit(REGRESSION, epochs=1, batch_size=BATCH, callbacks=[Rows()])
    assert seen[2:] == [(2, ROWS)]
    again = ray_kind(model_dir=str(tmp_path))
    figures = again.fit(REGRESSION, epochs=4, batch_size=BATCH, resume="auto")
    assert [(each["epoch"], each["num_samples"]) for each in figures] == [(epoch, ROWS) for epoch in range(1, 5)]


def test_a_callback_that_fails_in_the_end_does_not_cost_what_was_learnt(engine):
    calls = []

    class Failing(Callback):
        on_driver = True

        def on_fit_end(self, run):
            calls.append(run.error)
            raise LookupError("no such server")

    est = ray_kind()
    with pytest.raises(LookupError, match="no such server"):
        est.fit(REGRESSION, epochs=2, batch_size=BATCH, callbacks=[Failing()])
    assert calls == [None]
    assert len(est.result_.history) == 2
    calm = ray_kind()
    calm.fit(REGRESSION, epochs=2, batch_size=BATCH)
    assert (weights(est.get_model()) == weights(calm.get_model())).all()


@pytest.mark.alone
def test_a_slow_callback_of_the_driver_is_no_lost_worker(engine, monkeypatch):
    monkeypatch.setattr(gang, "SILENT_SECONDS", 1.0)

    class Slow(Callback):
        on_driver = True

        def on_epoch_end(self, run):
            time.sleep(2.5)

    est = ray_kind(stall_timeout=2)
    est.fit(REGRESSION, epochs=2, batch_size=BATCH, callbacks=[Slow()])
    assert est.result_.restarts == 0


def test_figures_that_callbacks_add_can_be_monitored(engine, tmp_path):
    est = ray_kind(model_dir=str(tmp_path))
    policies = [ModelCheckpoint(monitor="lr"), EarlyStopping(monitor="rows_per_second", patience=9)]
    est.fit(REGRESSION, epochs=2, batch_size=BATCH, callbacks=[LRMonitor(), Throughput(), *policies])
    assert est.result_.best_checkpoint.endswith(f"model.{STEPS + 1}")
