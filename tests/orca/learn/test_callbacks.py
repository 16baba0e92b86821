"""Callbacks: which rank has which, what they are told, what they do; by hand, and in fits."""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nets import X, Y, regression

from zoo.orca.errors import InvalidArgumentError, MissingPackageError, NotOfferedError
from zoo.orca.learn.callbacks import (
    Callback,
    Callbacks,
    EarlyStopping,
    LRMonitor,
    MLflow,
    ModelCheckpoint,
    Monitor,
    Progress,
    Run,
    TensorBoard,
    Throughput,
)
from zoo.orca.learn.callbacks.base import HOOKS
from zoo.orca.learn.summary import read_scalar
from zoo.orca.learn.trigger import EveryBatches


class Told(Callback):
    """Remembers which hooks were called."""

    def __init__(self):
        self.hooks = []

    def __getattribute__(self, name):
        if name in HOOKS:
            return lambda run: self.hooks.append(name)
        return super().__getattribute__(name)


class OnRankZero(Callback):
    rank_zero_only = True


class OnDriver(Callback):
    on_driver = True

    def on_step_end(self, run):
        raise KeyError("from the driver's callback")


class Counting(Callback):
    def __init__(self):
        self.count = 0

    def on_step_end(self, run):
        self.count += 1

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


class Failing(Callback):
    on_driver = True

    def on_fit_end(self, run):
        raise OSError("the disk is full")


def ran(callback: Callback, values: list[float], name: str = "val_loss", first: int = 1) -> str | None:
    """The reason why a callback stops, when epochs end with these values of a figure."""
    for epoch, value in enumerate(values, start=first):
        run = Run(epoch=epoch, last_epoch=100, figures={name: value, "num_samples": 8})
        callback.on_epoch_end(run)
        if run.stopped is not None:
            return run.stopped
    return None


def test_each_process_has_its_own_callbacks_under_the_same_keys():
    driver, first, each = OnDriver(), OnRankZero(), Counting()
    callbacks = Callbacks([driver, first, each])
    assert list(callbacks.on_driver()) == [driver]
    assert list(callbacks.on_workers()) == [first, each]
    assert list(callbacks.for_rank(0)) == [first, each]
    assert list(callbacks.for_rank(3)) == [each]
    assert callbacks.for_rank(0).state() == callbacks.on_workers().for_rank(3).state() == {"2:Counting": {"count": 0}}


def test_hooks_are_called_in_order_and_only_those_that_are_overridden_count():
    told = [Told(), Told()]
    callbacks = Callbacks(told)
    for hook in HOOKS:
        callbacks.call(hook, Run())
    assert told[0].hooks == told[1].hooks == list(HOOKS)
    assert Callbacks([Counting()]).overrides("on_step_end")
    assert not Callbacks([Counting(), OnRankZero()]).overrides("on_epoch_end")
    assert not Callbacks([OnDriver()]).for_rank(0).overrides("on_step_end")


def test_state_goes_to_the_callback_in_the_same_place():
    callbacks = Callbacks([OnRankZero(), Counting(), Counting()])
    callbacks.call("on_step_end", Run())
    list(callbacks)[2].on_step_end(Run())
    state = json.loads(json.dumps(callbacks.state()))
    assert state == {"1:Counting": {"count": 1}, "2:Counting": {"count": 2}}, "those without a state are left out"
    other = pickle.loads(pickle.dumps(Callbacks([OnRankZero(), Counting(), Counting(), Counting()])))
    other.load(state | {"9:Gone": {}})
    assert [each.count for each in list(other)[1:]] == [1, 2, 0]


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ([Counting], r"Type Counting\(\.\.\.\)"),
        ([print], "Derive its class from"),
        (Counting(), r"Type callbacks=\[Counting\(\.\.\.\)\]"),
        ("progress", "a list of callbacks or None"),
        ([same := Counting(), same], "twice"),
    ],
)
def test_what_is_no_list_of_callbacks_is_refused(wrong, hint):
    with pytest.raises(InvalidArgumentError, match=hint):
        Callbacks(wrong)


def test_a_state_that_is_no_dict_is_refused():
    class Odd(Callback):
        def state_dict(self):
            return 5

    with pytest.raises(InvalidArgumentError, match=r"state_dict\(\) of Odd to give a dict, got 5"):
        Callbacks([Odd()]).state()


def test_all_end_though_one_fails_and_the_error_of_the_fit_is_not_covered(caplog):
    last = Told()
    callbacks = Callbacks([Failing(), last])
    with pytest.raises(OSError, match="disk is full"):
        callbacks.call("on_fit_end", Run())
    callbacks.call("on_fit_end", Run(error=ValueError("the user's")))
    assert last.hooks == ["on_fit_end"] * 2
    assert "the disk is full" in caplog.text


def test_the_first_reason_to_stop_counts_and_the_driver_cannot_stop():
    run = Run()
    run.stop("enough")
    run.stop("more than enough")
    assert run.stopped == "enough"
    with pytest.raises(InvalidArgumentError, match="reason to stop"):
        Run().stop(None)
    with pytest.raises(NotOfferedError, match="Leave out on_driver"):
        Run(driver=True).stop("enough")


@pytest.mark.parametrize(
    "name", ["val_accuracy", "val_Top1Accuracy", "AUC", "f1", "precision", "Recall", "NDCG", "hit_ratio"]
)
def test_scores_are_better_when_higher(name):
    assert Monitor(name).mode == "max"
    assert Monitor(name, mode="min").mode == "min"


@pytest.mark.parametrize(
    "name", ["val_loss", "train_loss", "val_mse", "MAE", "rows", "accumulated_loss", "recall_error"]
)
def test_other_figures_are_better_when_lower(name):
    assert Monitor(name).mode == "min"


@given(
    losses=st.lists(st.sampled_from([0.1, 0.2, 0.3, math.nan]), max_size=12),
    patience=st.integers(0, 4),
    sign=st.sampled_from(["min", "max"]),
)
def test_early_stopping_waits_for_so_many_epochs_without_a_better_one(losses, patience, sign):
    figure = [loss if sign == "min" else -loss for loss in losses]
    best, waited, expected = math.inf, 0, None
    for number, loss in enumerate(losses):
        waited = 0 if loss < best else waited + 1
        best = min(best, loss) if not math.isnan(loss) else best
        if waited >= max(patience, 1):
            expected = number
            break
    stopping = EarlyStopping("x", patience=patience, mode=sign)
    stopped = [ran(stopping, [value], "x", first=number) is not None for number, value in enumerate(figure)]
    assert (stopped.index(True) if True in stopped else None) == expected


@given(losses=st.lists(st.floats(0, 1), min_size=1, max_size=12), middle=st.integers(0, 12))
def test_early_stopping_taken_up_in_the_middle_stops_where_it_would_have(losses, middle):
    whole, before, after = EarlyStopping(patience=2), EarlyStopping(patience=2), EarlyStopping(patience=2)
    early = ran(before, losses[:middle])
    if early is None:
        after.load_state_dict(json.loads(json.dumps(before.state_dict())))
        early = ran(after, losses[middle:], first=middle + 1)
    assert early == ran(whole, losses)


def test_early_stopping_says_why_and_knows_small_steps_from_none():
    assert (
        ran(EarlyStopping(patience=2), [0.5, 0.4, 0.41, 0.42])
        == "val_loss was not better than 0.4 (epoch 2) for 2 epochs"
    )
    assert (
        ran(EarlyStopping(patience=1, min_delta=0.1), [0.5, 0.45])
        == "val_loss was not better than 0.5 (epoch 1) for 1 epoch"
    )
    assert ran(EarlyStopping(patience=1, min_delta=0.01), [0.5, 0.45, 0.4]) is None
    assert ran(EarlyStopping("val_auc", patience=1), [0.5, 0.6, 0.6], "val_auc").startswith(
        "val_auc was not better than 0.6"
    )
    assert ran(EarlyStopping(patience=1), [np.float32(0.5), np.float32(0.7)]) is not None
    assert ran(EarlyStopping(patience=1), [math.nan]) == "val_loss was not better than any for 1 epoch"


@pytest.mark.parametrize(
    ("figures", "hint"),
    [
        ({"train_loss": 1.0, "num_samples": 3}, r"'num_samples', 'train_loss', got 'val_loss'\. Nothing was validated"),
        ({"train_loss": 1.0, "val_auc": 0.5, "profile": {}}, r"'train_loss', 'val_auc', got 'val_loss'\.$"),
    ],
)
def test_a_figure_that_does_not_exist_is_answered_with_those_that_do(figures, hint):
    with pytest.raises(InvalidArgumentError, match=hint):
        EarlyStopping().on_epoch_end(Run(figures=figures))


def test_the_figure_of_validation_is_suggested():
    with pytest.raises(InvalidArgumentError, match="Did you mean 'val_auc'"):
        Monitor("auc").value({"val_auc": 1.0})


def test_epochs_that_were_not_validated_do_not_count():
    stopping = EarlyStopping(patience=1)
    for validated in (None, 0.5, None, 0.4):
        figures = {} if validated is None else {"val_loss": validated}
        run = Run(validates=True, figures={"train_loss": 1.0, **figures})
        stopping.on_epoch_end(run)
        assert run.stopped is None
    with pytest.raises(InvalidArgumentError, match="give fit validation_data"):
        EarlyStopping().on_epoch_end(Run(validates=False, figures={"train_loss": 1.0}))


def test_model_checkpoint_holds_what_the_worker_reads():
    default = ModelCheckpoint()
    assert (repr(default.trigger), default.keep_last, default.monitor, default.mode) == (
        "EveryEpochs(1)",
        3,
        None,
        "min",
    )
    best = ModelCheckpoint(every=EveryBatches(5), keep_last=None, monitor="val_auc")
    assert (repr(best.trigger), best.keep_last, best.monitor, best.mode) == ("EveryBatches(5)", None, "val_auc", "max")
    assert not any(Callbacks([default]).overrides(hook) for hook in HOOKS)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ModelCheckpoint(every=None),
        lambda: ModelCheckpoint(every="10 apples"),
        lambda: ModelCheckpoint(keep_last=0),
        lambda: ModelCheckpoint(monitor="val_loss", mode="up"),
        lambda: ModelCheckpoint(mode="up"),
        lambda: EarlyStopping(monitor=None),
        lambda: EarlyStopping(patience=1.5),
        lambda: EarlyStopping(min_delta=-1),
        lambda: EarlyStopping(mode="lower"),
        lambda: TensorBoard(None),
        lambda: MLflow(every=0),
        lambda: MLflow(params=[1]),
    ],
)
def test_arguments_are_checked_when_a_callback_is_made(make):
    with pytest.raises(InvalidArgumentError, match="Expected"):
        make()


def test_throughput_counts_neither_validation_nor_checkpoints():
    throughput = Throughput()
    now = time.time()
    throughput.on_epoch_start(Run(rows_in_epoch=999))  # of the epoch before: none of this one's steps is done
    throughput._since = now - 100  # as if the epoch had begun then
    throughput.on_validation_end(Run(time=now - 90))
    throughput._since = now - 40  # as if that had taken 50 s
    throughput.on_checkpoint(Run(time=now - 30))
    throughput._since = now - 5
    run = Run(time=now - 5, rows_in_epoch=800)
    throughput.on_epoch_end(run)
    assert run.figures["rows_per_second"] == pytest.approx(800 / 20)
    throughput.on_epoch_start(Run(batch=3, rows_in_epoch=300))
    throughput._since = now - 10
    throughput.on_epoch_end(again := Run(time=now, rows_in_epoch=800))
    assert again.figures["rows_per_second"] == pytest.approx(500 / 10), "an epoch taken up counts from there"


def driven(callback: Callback, epochs: int = 2, steps: int = 3, error: BaseException | None = None) -> None:
    """Call the hooks of a driver's callback as a fit with validation at the end of each epoch does."""
    run = Run(driver=True, last_epoch=epochs, steps=steps, rows=8, rate=0.1, speed=100.0)
    callback.on_fit_start(run)
    for run.epoch in range(1, epochs + 1):
        callback.on_epoch_start(run)
        for run.batch in range(1, steps + 1):
            run.step += 1
            run.loss, run.time = 1 / run.step, 1000.0 + run.step
            callback.on_step_end(run)
        run.figures = {"val_loss": run.epoch / 10, "val_auc": np.float32(0.5)}
        callback.on_validation_end(run)
        run.figures = {"train_loss": float(run.epoch), "num_samples": 24, "lr": 0.1, "profile": {}, **run.figures}
        callback.on_epoch_end(run)
    run.error = error
    callback.on_fit_end(run)


def scalars(folder, tag: str) -> list[tuple[int, float]]:
    return [(step, round(value, 4)) for step, value, _ in read_scalar(folder, tag)]


def test_tensorboard_has_steps_validations_and_epochs(tmp_path):
    board = TensorBoard(tmp_path / "board")
    assert not (tmp_path / "board").exists(), "making one does nothing yet"
    driven(board)
    train, validation = tmp_path / "board" / "train", tmp_path / "board" / "validation"
    assert scalars(train, "loss") == [(step, round(1 / step, 4)) for step in range(1, 7)]
    assert scalars(train, "lr") == [(step, 0.1) for step in range(1, 7)]
    assert scalars(train, "rows_per_second") == [(step, 100.0) for step in range(1, 7)]
    assert [when for *_, when in read_scalar(train, "loss")] == [1000.0 + step for step in range(1, 7)]
    assert scalars(validation, "loss") == [(3, 0.1), (6, 0.2)]
    assert scalars(validation, "auc") == [(3, 0.5), (6, 0.5)]
    assert scalars(train, "epoch/train_loss") == [(1, 1.0), (2, 2.0)]
    assert scalars(train, "epoch/val_loss") == [(1, 0.1), (2, 0.2)]


class Screen(io.StringIO):
    def __init__(self, is_terminal: bool):
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self):
        return self.is_terminal


def test_progress_shows_a_bar_an_epoch_on_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    screen = Screen(is_terminal=True)
    monkeypatch.setattr(sys, "stderr", screen)
    driven(Progress())
    lines = [line.rpartition("\r")[2] for line in screen.getvalue().split("\n")]
    for epoch, line in enumerate(lines[:2], start=1):
        assert line.startswith(f"epoch {epoch}/2: 100%")
        assert "3/3" in line
        shown = dict(each.strip().split("=") for each in line.rstrip().rstrip("]").split(",") if "=" in each)
        assert float(shown["loss"]) == pytest.approx(1 / (3 * epoch), abs=1e-3)
        assert float(shown["rows/s"]) == 8.0, "the driven steps have 8 rows and take a second each"
        assert {name: float(shown[name]) for name in ("train_loss", "val_loss", "val_auc", "lr")} == {
            "train_loss": epoch,
            "val_loss": epoch / 10,
            "val_auc": 0.5,
            "lr": 0.1,
        }
    assert lines[2:] == [""]


def test_progress_ends_its_bar_when_the_fit_fails(monkeypatch):
    screen = Screen(is_terminal=True)
    monkeypatch.setattr(sys, "stderr", screen)
    progress = Progress()
    progress.on_step_end(Run(batch=4, steps=None, rows=8))
    progress.on_fit_end(Run(error=ValueError()))
    assert screen.getvalue().endswith("\n"), "what is printed next begins a line"
    assert "4 steps" in screen.getvalue()


def test_progress_is_silent_where_no_one_looks(monkeypatch):
    screen = Screen(is_terminal=False)
    monkeypatch.setattr(sys, "stderr", screen)
    driven(Progress())
    assert screen.getvalue() == ""


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> str:
    """One store for the tests of this module: making its tables takes seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/runs.db"


def mlflow_client(store: str):
    import mlflow

    return mlflow.MlflowClient(store)


def logged(store: str, run_id: str, name: str) -> list[tuple[int, float]]:
    return [(each.step, round(each.value, 4)) for each in mlflow_client(store).get_metric_history(run_id, name)]


def test_mlflow_has_parameters_figures_and_checkpoints(store, in_folder):
    callback = MLflow("by hand", store, "first", params={"lr": 0.1}, tags={"who": "we"}, log_checkpoints=True)
    checkpoint = in_folder / "model.4"
    checkpoint.write_text("weights")
    callback.on_checkpoint(Run(checkpoint=str(checkpoint)))  # before it has begun: nothing to write to
    driven(callback)
    run = mlflow_client(store).get_run(callback.run_id)
    assert (run.info.status, run.info.run_name, run.data.params) == ("FINISHED", "first", {"lr": "0.1"})
    assert run.data.tags["who"] == "we"
    assert logged(store, callback.run_id, "loss") == [(step, round(1 / step, 4)) for step in range(1, 7)]
    assert logged(store, callback.run_id, "rows_per_second") == [(step, 100.0) for step in range(1, 7)]
    assert logged(store, callback.run_id, "val_loss") == [(3, 0.1), (6, 0.2)]
    assert logged(store, callback.run_id, "train_loss") == [(3, 1.0), (6, 2.0)]
    assert logged(store, callback.run_id, "epoch") == [(3, 1.0), (6, 2.0)]
    assert os.listdir(in_folder) == ["model.4"], "nothing lies outside the store"


def test_mlflow_copies_checkpoints_or_says_where_they_are(store, in_folder):
    callback = MLflow("by hand", store, log_checkpoints=True)
    (in_folder / "model.4").write_text("weights")
    (in_folder / "whole.5").mkdir()
    (in_folder / "whole.5" / "part").write_text("weights")
    callback.on_fit_start(Run())
    for path in ("model.4", "whole.5", "s3://bucket/model.6"):
        callback.on_checkpoint(Run(checkpoint=path))
    callback.on_fit_end(Run(stopped="val_loss was not better"))
    client = mlflow_client(store)
    copied = [
        each.path
        for folder in ("checkpoints", "checkpoints/whole.5")
        for each in client.list_artifacts(callback.run_id, folder)
    ]
    assert copied == ["checkpoints/model.4", "checkpoints/whole.5", "checkpoints/whole.5/part"]
    tags = client.get_run(callback.run_id).data.tags
    assert (tags["checkpoint"], tags["stopped"]) == ("s3://bucket/model.6", "val_loss was not better")
    assert sorted(os.listdir(in_folder)) == ["model.4", "whole.5"]


@pytest.mark.parametrize(("error", "status"), [(ValueError("bad rows"), "FAILED"), (KeyboardInterrupt(), "KILLED")])
def test_mlflow_tells_how_a_fit_failed(store, error, status):
    callback = MLflow("by hand", store, every=2)
    driven(callback, error=error)
    run = mlflow_client(store).get_run(callback.run_id)
    assert run.info.status == status
    assert run.data.tags["error"].startswith(type(error).__name__)
    assert [step for step, _ in logged(store, callback.run_id, "loss")] == [2, 4, 6]


def test_mlflow_joins_the_users_run_and_leaves_it_open(store, monkeypatch):
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    with mlflow.start_run() as mine:
        callback = MLflow(params={"depth": 2})
        driven(callback)
        assert callback.run_id == mine.info.run_id
        assert mlflow_client(store).get_run(mine.info.run_id).info.status == "RUNNING"
        mlflow.log_metric("after", 1.0)
    run = mlflow_client(store).get_run(mine.info.run_id)
    assert (run.info.status, run.data.params, run.data.metrics["after"]) == ("FINISHED", {"depth": "2"}, 1.0)


def test_mlflow_writes_a_run_a_fit(store):
    callback = MLflow("by hand", store)
    ids = []
    for _ in range(2):
        driven(callback, epochs=1)
        ids.append(callback.run_id)
    assert ids[0] != ids[1]
    assert [logged(store, each, "val_loss") for each in ids] == [[(3, 0.1)]] * 2


def test_a_store_that_does_not_answer_ends_no_fit(store, caplog, monkeypatch):
    callback = MLflow("by hand", store)
    callback.on_fit_start(Run())
    log_batch, answers = callback._client.log_batch, iter([ConnectionError("no route"), None])

    def flaky(*args, **options):
        error = next(answers)
        if error is not None:
            raise error
        return log_batch(*args, **options)

    monkeypatch.setattr(callback._client, "log_batch", flaky)
    callback._flushed = 0.0
    callback.on_step_end(Run(step=1, loss=0.5))
    assert "MLflow did not take figures" in caplog.text
    callback.on_fit_end(Run())
    assert logged(store, callback.run_id, "loss") == [(1, 0.5)], "what was not taken is tried again"


def test_without_mlflow_the_line_to_install_it_is_shown(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    callback = MLflow()
    with pytest.raises(MissingPackageError, match=r"The MLflow callback needs the package 'mlflow'.*pip install"):
        callback.on_fit_start(Run())
    callback.on_fit_end(Run(error=MissingPackageError()))


# Imports MLflow through the callback, as a user would who is not in a test or a CI run.
ALONE = """
import json, os, socket, sys, threading
connected = []
connect = socket.socket.connect
socket.socket.connect = lambda self, address: (connected.append(str(address)), connect(self, address))[1]
before = dict(os.environ)
from zoo.orca.learn.callbacks import MLflow, Run
imported = "mlflow" in sys.modules
callback = MLflow("alone", sys.argv[1])
callback.on_fit_start(Run())
callback.on_step_end(Run(step=1, loss=0.5))
callback.on_fit_end(Run())
changed = {name for name in before.keys() | os.environ.keys() if before.get(name) != os.environ.get(name)}
print(json.dumps([imported, sorted(changed), connected, [each.name for each in threading.enumerate()]]))
"""


def test_mlflow_reports_to_no_one_and_leaves_nothing_behind(tmp_path):
    """MLflow keeps quiet in tests by itself, so this runs as if it were none."""
    hints = ("PYTEST_CURRENT_TEST", "CI", "MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK")
    environment = {name: value for name, value in os.environ.items() if name not in hints}
    home, folder = tmp_path / "home", tmp_path / "folder"
    home.mkdir()
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", ALONE, f"sqlite:///{tmp_path}/runs.db"],
        cwd=folder,
        env=environment | {"HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert json.loads(done.stdout) == [False, [], [], ["MainThread"]]
    assert [*home.iterdir(), *folder.iterdir()] == []


@pytest.mark.engines("local")
def test_a_fit_with_all_of_them(engine, store, tmp_path):
    tracking, board = MLflow("fits", store, params={"lr": 0.1}), TensorBoard(tmp_path)
    est = regression("torch_distributed", num_workers=2)
    stopping = EarlyStopping(patience=2, min_delta=0.5)
    est.fit(
        (X, Y),
        epochs=9,
        batch_size=8,
        validation_data=(X, Y),
        callbacks=[LRMonitor(), Throughput(), stopping, tracking, board],
    )
    result = est.result_
    losses = result.history["val_loss"].tolist()
    epochs = len(losses)
    assert epochs < 9, "the loss falls by less and less"
    last_better = epochs - 2
    assert (
        result.stopped == f"val_loss was not better than {losses[last_better - 1]:g} (epoch {last_better}) for 2 epochs"
    )
    assert result.history["lr"].tolist() == [0.1] * epochs
    assert (result.history["rows_per_second"] > 0).all()

    steps = 3 * epochs
    in_board = scalars(tmp_path / "train", "loss")
    assert [step for step, _ in in_board] == list(range(1, steps + 1))
    assert scalars(tmp_path / "validation", "loss") == [(3 * n, round(v, 4)) for n, v in enumerate(losses, start=1)]
    assert scalars(tmp_path / "train", "epoch/lr") == [(n, 0.1) for n in range(1, epochs + 1)]

    run = mlflow_client(store).get_run(tracking.run_id)
    assert (run.info.status, run.data.tags["stopped"], run.data.params) == ("FINISHED", result.stopped, {"lr": "0.1"})
    assert logged(store, tracking.run_id, "loss") == in_board
    assert logged(store, tracking.run_id, "val_loss") == scalars(tmp_path / "validation", "loss")
    trained = [round(value, 4) for value in result.history["train_loss"]]
    assert logged(store, tracking.run_id, "train_loss") == [(3 * n, v) for n, v in enumerate(trained, start=1)]


class FailsAtStep(Callback):
    """Fails on the last rank."""

    def on_step_end(self, run):
        if run.step == 2 and run.rank == run.world_size - 1:
            raise ArithmeticError("a hook of the user")


@pytest.mark.engines("local")
def test_what_a_hook_raises_ends_the_fit_and_its_run(engine, store):
    tracking = MLflow("fits", store)
    with pytest.raises(ArithmeticError, match="a hook of the user") as raised:
        regression("torch_distributed", num_workers=2).fit(
            (X, Y), epochs=2, batch_size=8, callbacks=[FailsAtStep(), tracking]
        )
    assert (raised.value.rank, raised.value.step) == (1, 2)
    run = mlflow_client(store).get_run(tracking.run_id)
    assert (run.info.status, run.data.tags["error"]) == ("FAILED", "ArithmeticError: a hook of the user")


@pytest.mark.engines("local")
def test_a_figure_that_no_epoch_has_is_an_error_of_the_fit(engine):
    with pytest.raises(InvalidArgumentError, match=r"one of the figures .*'train_loss'.*, got 'accuracy'"):
        regression("torch_distributed").fit(
            (X, Y), epochs=2, batch_size=8, callbacks=[EarlyStopping(monitor="accuracy")]
        )


class SleepsAfterValidation(Callback):
    def on_epoch_start(self, run):
        self.rows_before = run.rows_in_epoch

    def on_validation_end(self, run):
        time.sleep(1.0)

    def on_epoch_end(self, run):
        run.figures["rows_before"] = self.rows_before


class Seen(Callback):
    on_driver = True

    def __init__(self):
        self.steps = []

    def on_step_end(self, run):
        self.steps.append(
            (run.epoch, run.last_epoch, run.batch, run.steps, run.rows, run.rows_in_epoch, run.world_size)
        )


@pytest.mark.alone
@pytest.mark.engines("local")
def test_what_a_run_tells_on_workers_and_on_the_driver(engine):
    seen = Seen()
    est = regression("torch_distributed", num_workers=2)
    callbacks = [SleepsAfterValidation(), Throughput(), seen]
    est.fit((X, Y), epochs=2, batch_size=10, validation_data=(X, Y), callbacks=callbacks)
    sizes = [(1, 10, 10), (2, 10, 20), (3, 4, 24)]
    assert seen.steps == [(epoch, 2, batch, 3, rows, total, 2) for epoch in (1, 2) for batch, rows, total in sizes]
    assert est.result_.history["rows_before"].tolist() == [0, 0]
    # Three small steps take milliseconds; had the second after validation counted, it would be less.
    assert est.result_.history["rows_per_second"].max() > 24
