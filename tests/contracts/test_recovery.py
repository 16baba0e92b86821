"""A worker that dies at any point of a fit changes nothing: weights, figures and callbacks end as if it had not."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset

from learning import RAGGED, Net, Rows, digest_of
from zoo.orca.data import XShards
from zoo.orca.errors import CheckpointError, InvalidArgumentError, WorkerLostError
from zoo.orca.learn.callbacks import Callback, ModelCheckpoint
from zoo.orca.learn.metrics import Accuracy
from zoo.orca.learn.pytorch import Estimator, TrainingOperator

EPOCHS = 3
BATCH = 5  # the last batch of an epoch has 2 rows, which BatchNorm can still take
ROWS = Rows(sum(RAGGED))
STEPS = -(-sum(RAGGED) // BATCH)
PLACES = ("before", "within", "after", "saving", "validating")
EXAMPLES = {"local": 4, "spark": 2, "ray": 2}
# Processes of a loader that are killed leave a folder for their sockets; only the embedded engine has a place for it.
KINDS = {"local": ["shards", "loader", "processes"], "spark": ["shards", "loader"], "ray": ["shards", "loader"]}


class Death(NamedTuple):
    """A rank dies where its operator has taken so many steps, once."""

    rank: int
    step: int
    place: str


class Mortal(TrainingOperator):
    """Trains as ever, but for the deaths in its config; those that happened have left a file."""

    def train_batch(self, batch, batch_info):
        self._die("before")
        # Users draw from all of them.
        noise = torch.rand(()) + float(np.random.random()) + float(np.random.default_rng(0).random())
        figures = super().train_batch(batch, batch_info)
        self._die("after")
        return figures | {"noise": float(noise)}

    def forward_batch(self, batch, batch_info):
        found = super().forward_batch(batch, batch_info)
        self._die("within")
        return found

    def validate(self, *args):
        self._die("validating")
        return super().validate(*args)

    def state_dict(self):
        self._die("saving")
        return {"steps": self.global_step}

    def _die(self, place):
        for death in self.config.get("deaths", ()):
            if death == (self.world_rank, self.global_step, place):
                mark = Path(self.config["folder"]) / "-".join(map(str, death))
                if not mark.exists():
                    mark.touch()
                    os.kill(os.getpid(), signal.SIGKILL)


class Counting(Callback):
    """Remembers what it saw, and tells it as a figure, for it must survive."""

    def __init__(self):
        self.losses = []
        self.validations = 0

    def on_step_end(self, run):
        self.losses.append(run.loss)

    def on_validation_end(self, run):
        self.validations += 1

    def on_epoch_end(self, run):
        run.figures |= {
            "sum_of_losses": sum(filter(None, self.losses)),
            "validations": self.validations,
            "steps": len(self.losses),
        }

    def state_dict(self):
        return {"losses": list(self.losses), "validations": self.validations}

    def load_state_dict(self, state):
        self.losses, self.validations = state["losses"], state["validations"]


class Augmented(Dataset):
    """Rows with noise from torch's own generator."""

    def __len__(self):
        return len(ROWS.x)

    def __getitem__(self, index):
        return torch.from_numpy(ROWS.x[index]) + 0.1 * torch.randn(4), ROWS.classes[index]


def make_net(config):
    return Net(dropout=0.3, norm=True)


def make_adam(net, config):
    return torch.optim.Adam(net.parameters(), lr=0.05)


def make_scheduler(optimizer, config):
    return torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.7)


def make_loader(processes, config, batch_size):
    return DataLoader(Augmented(), batch_size=batch_size, shuffle=True, num_workers=processes)


def data_of(engine, kind):
    if kind == "shards":
        return XShards.from_placement(engine.place(ROWS.cut(RAGGED)))
    return functools.partial(make_loader, {"loader": 0, "processes": 1}[kind])


def estimator(folder: Any, deaths: Sequence[Death] = (), **options: Any):
    given = {
        "model": make_net,
        "optimizer": make_adam,
        "loss": torch.nn.CrossEntropyLoss(),
        "metrics": [Accuracy()],
        "scheduler_creator": make_scheduler,
        "training_operator_cls": Mortal,
        "config": {"deaths": [tuple(each) for each in deaths], "folder": str(folder)},
        "backend": "torch_distributed",
        "num_workers": 2,
    }
    return Estimator.from_torch(**(given | options))


def fitted(engine, folder, kind="shards", deaths=(), trigger=None, callbacks=(), resume=None, epochs=EPOCHS, **options):
    """The estimator after a fit, and what fit gave."""
    est = estimator(folder, deaths, **options)
    data = data_of(engine, kind)
    given = {"validation_data": data} if kind == "shards" else {}
    figures = est.fit(
        data, epochs, BATCH, checkpoint_trigger=trigger, callbacks=[Counting(), *callbacks], resume=resume, **given
    )
    return est, [{name: value for name, value in each.items() if name != "profile"} for each in figures]


@functools.lru_cache
def undisturbed(engine, kind, trigger=None, accumulate=1):
    """What a fit ends with that nobody disturbs and that writes no checkpoint at all; the trigger also validates."""
    est, figures = fitted(engine, None, kind, trigger=trigger, accumulate=accumulate, max_failures=0)
    return digest_of(est.get_model()), figures


deaths = st.lists(
    st.builds(Death, st.integers(0, 1), st.integers(0, EPOCHS * STEPS - 1), st.sampled_from(PLACES)),
    min_size=1,
    max_size=2,
    unique=True,
)


class TestAnyPoint:
    def test_weights_and_figures_are_those_of_an_undisturbed_fit(self, engine, tmp_path_factory):
        @settings(max_examples=EXAMPLES[engine.name], deadline=None, suppress_health_check=list(HealthCheck))
        @given(
            deaths,
            st.sampled_from(["2ba", "3ba", "1ep", None]),
            st.sampled_from(KINDS[engine.name]),
            st.booleans(),
            st.sampled_from([1, 2]),
        )
        def check(deaths, trigger, kind, has_folder, accumulate):
            folder = tmp_path_factory.mktemp("kills")
            options = {"model_dir": str(folder / "runs")} if has_folder else {}
            est, figures = fitted(engine, folder, kind, deaths, trigger, accumulate=accumulate, **options)
            weights, expected = undisturbed(engine, kind, trigger, accumulate)
            assert digest_of(est.get_model()) == weights
            assert figures == expected
            happened = [each for each in deaths if (folder / "-".join(map(str, each))).exists()]
            assert est.result_.restarts == len(happened)

        check()

    @pytest.mark.engines("local")
    @pytest.mark.parametrize("backend", ["bigdl", "horovod"])
    def test_every_backend_recovers(self, engine, tmp_path, backend):
        options = {"metrics": [Accuracy()], "backend": backend}
        calm = estimator(tmp_path, **options)
        lost = estimator(tmp_path, [Death(1, 7, "within"), Death(0, 9, "after")], **options)
        for each in (calm, lost):
            each.fit(data_of(engine, "shards"), EPOCHS, BATCH, checkpoint_trigger="2ba")
        assert digest_of(lost.get_model()) == digest_of(calm.get_model())
        assert lost.result_.restarts == 2


class Remembering(Mortal):
    """Every rank has something of its own, which must outlast epochs and restarts."""

    def setup(self, config):
        self.bias = float(self.world_rank)

    def forward_batch(self, batch, batch_info):
        output, target, loss = super().forward_batch(batch, batch_info)
        self.bias += 0.25
        self.model.drift += 0.125
        return output, target, loss * (1 + self.bias + self.model.drift.item())

    def state_dict(self):
        return super().state_dict() | {"bias": self.bias}

    def load_state_dict(self, state):
        self.bias = state["bias"]


class Drifting(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("drift", torch.zeros(()), persistent=False)


class Told(Callback):
    """What the driver hears."""

    on_driver = True

    def __init__(self):
        self.steps, self.epochs, self.starts = [], [], []

    def on_epoch_start(self, run):
        self.starts.append(run.epoch)

    def on_step_end(self, run):
        self.steps.append(run.step)

    def on_epoch_end(self, run):
        self.epochs.append((run.epoch, run.batch, run.rows_in_epoch))


@pytest.mark.engines("local")
class TestBetweenEpochs:
    def test_what_a_rank_has_for_itself_outlasts_an_epoch(self, engine, tmp_path):
        options = {"model": lambda config: Drifting(), "training_operator_cls": Remembering, "metrics": None}
        data = data_of(engine, "shards")
        ended = []
        for deaths in ((), (Death(1, STEPS + 1, "before"),)):
            est = estimator(tmp_path, deaths, **options)
            est.fit(data, EPOCHS, BATCH, checkpoint_trigger="1ep")
            ended.append((digest_of(est.get_model()), est.result_.restarts))
        assert ended == [(ended[0][0], 0), (ended[0][0], 1)]

    def test_each_step_is_told_once(self, engine, tmp_path):
        told = Told()
        fitted(engine, tmp_path, deaths=[Death(0, 6, "before"), Death(0, 9, "after")], trigger="3ba", callbacks=[told])
        assert told.steps == list(range(1, EPOCHS * STEPS + 1))
        assert told.starts == list(range(1, EPOCHS + 1))
        assert told.epochs == [(epoch, STEPS, sum(RAGGED)) for epoch in range(1, EPOCHS + 1)]


class TestTheLimits:
    @pytest.mark.engines("local")
    def test_too_many_deaths_end_the_fit(self, engine, tmp_path):
        with pytest.raises(WorkerLostError, match="lost rank") as caught:
            fitted(engine, tmp_path, deaths=[Death(0, 1, "after"), Death(1, 2, "after")], max_failures=1)
        assert caught.value.ranks == (1,)

    def test_an_exception_is_not_retried(self, engine, tmp_path):
        est = estimator(tmp_path, training_operator_cls=Raising)
        with pytest.raises(ZeroDivisionError, match="by hand") as caught:
            est.fit(data_of(engine, "shards"), EPOCHS, BATCH)
        assert (caught.value.rank, caught.value.step) == (1, 4)
        assert len(list(tmp_path.glob("attempt-*"))) == 1


class Raising(TrainingOperator):
    def setup(self, config):
        if self.world_rank == 1:
            Path(config["folder"], f"attempt-{os.getpid()}").touch()

    def train_batch(self, batch, batch_info):
        if self.world_rank == 1 and self.global_step == 3:
            raise ZeroDivisionError("by hand")
        return super().train_batch(batch, batch_info)


DRIVER = """
    import sys
    sys.path[:0] = {paths!r}
    from pathlib import Path
    from test_recovery import *
    from zoo.orca.context import current_engine

    class Fatal(Callback):
        on_driver = True

        def on_step_end(self, run):
            if run.step >= {step}:
                os.kill(os.getpid(), signal.SIGKILL)

    fitted(current_engine(), None, "loader", trigger={trigger!r}, callbacks=[Fatal()], model_dir={folder!r})
"""


@pytest.mark.engines("local")
class TestResume:
    @pytest.mark.parametrize("trigger", ["2ba", "1ep"])
    def test_a_driver_that_died_is_resumed(self, engine, tmp_path, trigger):
        folder = str(tmp_path / "runs")
        paths = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
        script = textwrap.dedent(DRIVER).format(paths=paths, step=8, trigger=trigger, folder=folder)
        # What a killed driver leaves in its temporary folder is not this test's to count.
        own = os.environ | {"TMPDIR": str(tmp_path)}
        ended = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, env=own)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        est, figures = fitted(engine, None, "loader", trigger=trigger, resume="auto", model_dir=folder)
        weights, expected = undisturbed(engine, "loader", trigger)
        assert digest_of(est.get_model()) == weights
        assert figures == expected
        assert len(os.listdir(folder)) == 1

    def test_a_fit_that_is_done_is_not_done_again(self, engine, tmp_path):
        first, figures = fitted(engine, None, resume="auto", model_dir=str(tmp_path))
        files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("model.*")}
        again, same = fitted(engine, None, resume="auto", model_dir=str(tmp_path))
        assert digest_of(again.get_model()) == digest_of(first.get_model())
        assert same == figures
        assert files == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("model.*")}
        _, longer = fitted(engine, None, resume="auto", model_dir=str(tmp_path), epochs=EPOCHS + 1)
        assert longer[:EPOCHS] == figures
        assert len(longer) == EPOCHS + 1

    def test_what_cannot_be_resumed_is_said(self, engine, tmp_path):
        fitted(engine, None, model_dir=str(tmp_path))
        data = data_of(engine, "shards")
        with pytest.raises(CheckpointError, match=r"batch_size=5, but this one has 6"):
            estimator(None, model_dir=str(tmp_path)).fit(data, EPOCHS, 6, resume="auto")
        with pytest.raises(InvalidArgumentError, match="model_dir"):
            estimator(None).fit(data, EPOCHS, BATCH, resume="auto")
        with pytest.raises(InvalidArgumentError, match='"auto" or None'):
            estimator(None, model_dir=str(tmp_path)).fit(data, EPOCHS, BATCH, resume="always")
        with pytest.raises(CheckpointError, match="was written for another model"):
            estimator(None, model_dir=str(tmp_path), model=lambda config: Net(norm=False)).fit(
                data, EPOCHS, BATCH, resume="auto"
            )
        other = XShards.from_placement(engine.place([[{"x": ROWS.x, "y": ROWS.classes}]] * 2))
        with pytest.raises(CheckpointError, match="rows"):
            estimator(None, model_dir=str(tmp_path)).fit(other, EPOCHS, BATCH, resume="auto")


@pytest.mark.engines("local")
class TestKeeping:
    def test_the_last_ones_and_the_best_are_kept(self, engine, tmp_path):
        policy = ModelCheckpoint(every="1ba", keep_last=2, monitor="val_loss")
        est = estimator(None, model_dir=str(tmp_path))
        data = data_of(engine, "shards")
        est.fit(data, EPOCHS, BATCH, validation_data=data, callbacks=[policy])
        result = est.result_
        kept = {path.name for path in tmp_path.rglob("model.*")}
        last = EPOCHS * STEPS + 1
        assert {f"model.{last}", f"model.{last - 1}"} <= kept
        assert len(kept) <= 3
        assert result.last_checkpoint.endswith(f"/model.{last}")
        assert Path(result.best_checkpoint).name in kept
        est.load(result.best_checkpoint)
        best = est.evaluate(data, BATCH)
        validated = result.history["val_loss"]
        assert best["val_loss"] <= validated.min() + 1e-12
