"""Whatever dies of a kvstore, a rank, a server or the scheduler: the gang ends with the first cause, and all of it."""

from __future__ import annotations

import time

import numpy as np
import psutil
import pytest

from zoo.orca.engine.gang import GangOptions, run_gang
from zoo.orca.errors import GangStalledError, WorkerLostError
from zoo.orca.learn.callbacks import Callback
from zoo.orca.learn.mxnet import Estimator, create_config
from zoo.orca.learn.sync.kvstore import KVStoreSync
from zoo.orca.learn.sync.timed import TimedGroup
from zoo.orca.learn.trigger import SeveralIteration
from zoo.orca.mxnet_library import load


def child(role):
    """The process of this rank that has that part."""
    alive = [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]
    (found,) = (each for each in alive if each.environ().get("DMLC_ROLE") == role)
    return found


def sum_for_ever(group):
    mx = load()
    arrays = [mx.nd.ones((300, 300)), mx.nd.ones((10,))]
    while True:
        group.sum_arrays(arrays)


class ServerKiller(Callback):
    """Kills the server of rank 1 once, after a step in the middle of an epoch."""

    def __init__(self, mark, step):
        self.mark, self.step = mark, step

    def on_step_end(self, run):
        if run.rank == 1 and run.step == self.step and not self.mark.exists():
            self.mark.touch()
            child("server").kill()


def drawing_net(config):
    """All that asks for care when training is taken up: random numbers, statistics of each rank."""
    nn = load().gluon.nn
    made = nn.HybridSequential()
    made.add(nn.Dense(6), nn.BatchNorm(momentum=0.5), nn.Dropout(0.4), nn.Dense(1))
    return made


@pytest.mark.engines("local")
def test_a_fit_goes_on_to_the_bit_when_a_server_was_killed(engine, tmp_path, caplog):
    x = np.random.default_rng(0).random((40, 3), np.float32)
    trained = []
    for step in (0, 8):
        est = Estimator.from_mxnet(
            config=create_config(optimizer="adam"),
            model_creator=drawing_net,
            loss_creator=lambda config: load().gluon.loss.L2Loss(),
            num_workers=2,
            model_dir=str(tmp_path / str(step)),
            max_failures=1,
        )
        killer = ServerKiller(tmp_path / f"{step}.dead", step)
        est.fit((x, x.sum(axis=1)), 2, 8, checkpoint_trigger=SeveralIteration(2), callbacks=[killer])
        trained.append(est)
    straight, killed = trained
    assert (straight.result_.restarts, killed.result_.restarts) == (0, 1)
    assert "MXNet's server 1 ended (signal 9). Restarting the gang" in caplog.text
    np.testing.assert_array_equal(killed.predict(x), straight.predict(x))
    assert killed.result_.history["train_loss"].tolist() == straight.result_.history["train_loss"].tolist()


@pytest.mark.engines("local")
def test_a_killed_scheduler_is_a_lost_worker_and_an_error_is_the_callers(engine):
    """Those left are deep in a sum that never comes. What stays behind is looked for after every test."""

    def agree(worker):
        mx = load()
        with KVStoreSync().join(worker) as group:
            if worker.attempt == 0:
                if worker.rank == 0:
                    child("scheduler").kill()
                sum_for_ever(group)
            arrays = [mx.nd.ones((3,)), mx.nd.ones((300, 300))]
            group.sum_arrays(arrays)
            assert arrays[0].asnumpy().tolist() == [2.0] * 3
            if worker.rank == 1:  # it comes late, when the sum is waited for
                arrays[0] = mx.nd.random.normal(0, -1, (3,))
            group.sum_arrays(arrays)

    lost = []
    options = GangOptions(max_failures=1, again=lambda error: lost.append(error) or ())
    with pytest.raises(load().base.MXNetError, match="scale"):
        run_gang(engine, agree, 2, options=options)
    (error,) = lost
    assert str(error) == "lost rank(s) 0 of 2: MXNet's scheduler ended (signal 9)."
    assert (type(error), error.ranks) == (WorkerLostError, (0,))


@pytest.mark.alone
@pytest.mark.engines("local")
def test_who_never_comes_to_the_sum_is_blamed_alone(engine):
    def oversleep(worker):
        with KVStoreSync(1).join(worker) as group:
            group, arrays = TimedGroup(group, worker), [load().nd.ones((300, 300))]
            group.sum_arrays(arrays)
            worker.report(step=3)
            if worker.rank == 1:
                slow_loader()
            group.sum_arrays(arrays)

    def slow_loader():
        time.sleep(300)

    run_gang(engine, lambda worker: load() and None, 2)  # it takes longer than the ranks may be silent here
    with pytest.raises(GangStalledError, match=r"rank\(s\) 1 reported nothing for 2 s") as caught:
        run_gang(engine, oversleep, 2, options=GangOptions(stall_timeout=2))
    assert "slow_loader()" in caught.value.stacks[1]
    assert "group.sum_arrays(arrays)" in caught.value.stacks[0]
