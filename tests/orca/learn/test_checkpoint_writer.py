"""Checkpoints on their way: whole wherever the process dies, while training goes on, on any filesystem."""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nets import REGRESSION, regression, weights

from zoo.orca.errors import CheckpointError, InvalidArgumentError
from zoo.orca.learn.callbacks import ModelCheckpoint
from zoo.orca.learn.checkpoint import Checkpoints, read_checkpoint
from zoo.orca.learn.checkpoint_writer import CheckpointWriter, Keeper, Parcel
from zoo.orca.learn.pytorch import TrainingOperator


def state_of(number):
    return {"models": [{"w": torch.full((1000,), float(number))}], "neval": number, "progress": {}}


class Mortal(Checkpoints):
    """Dies at the n-th thing that it asks of the operating system."""

    def write(self, number, state):
        left = int(self.name.rpartition("-")[2])

        def dying(function):
            def call(*args):
                nonlocal left
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*args)

            return call

        os.fsync, os.replace = dying(os.fsync), dying(os.replace)
        torch.save = dying(self._half_then_all(torch.save, dying(lambda: None)))
        super().write(number, state)

    @staticmethod
    def _half_then_all(save, die):
        def call(state, file):
            file.write(b"half of it")
            file.flush()
            die()
            file.seek(0)
            save(state, file)

        return call


def in_child(function):
    """Run a function in a forked process and give how that ended."""
    pid = os.fork()
    if pid == 0:
        try:
            function()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class TestKilled:
    def test_at_any_call_the_old_or_the_new_one_is_whole(self, tmp_path):
        Checkpoints(str(tmp_path), "Net").write(5, state_of(5))
        seen = []
        for point in range(20):
            mortal = Mortal(str(tmp_path), f"Net-{point}")
            ended = in_child(lambda mortal=mortal: mortal.write(9, state_of(9)))
            found = read_checkpoint(str(tmp_path))
            assert found["models"][0]["w"].tolist() == [float(found["neval"])] * 1000
            seen.append(found["neval"])
            mortal.tidy()
            assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]
            if ended == 0:
                break
        assert ended == 0, "the last point must be after the end"
        assert seen == sorted(seen)
        assert (seen[0], seen[-1]) == (5, 9)
        assert len(seen) > 8


class TestWhileTrainingGoesOn:
    def test_a_step_waits_only_for_the_checkpoint_before(self, tmp_path):
        go_on, written = threading.Event(), []

        class Slow(Checkpoints):
            def write(self, number, state):
                go_on.wait(10)
                super().write(number, state)

        writer = CheckpointWriter(Slow(str(tmp_path), "Net"), written.append)
        writer.submit(2, 1, state_of(2), {})
        assert not written  # and here we are
        assert not list(tmp_path.iterdir())
        go_on.set()
        writer.submit(3, 1, state_of(3), {})
        assert [each.step for each in written][:1] == [1]
        writer.wait()
        writer.close()
        assert [(each.step, each.path) for each in written] == [(1, f"{tmp_path}/model.2"), (2, f"{tmp_path}/model.3")]

    @pytest.mark.parametrize("required", [True, False])
    def test_a_disk_that_is_full(self, tmp_path, caplog, required):
        class Full(Checkpoints):
            def write(self, number, state):
                raise OSError("No space left on device")

        writer = CheckpointWriter(Full(str(tmp_path), "Net"), lambda written: None, required=required)
        writer.submit(2, 1, state_of(2), {})
        try:
            if required:
                with pytest.raises(OSError, match="No space left"):
                    writer.wait()
            else:
                with caplog.at_level(logging.WARNING, "zoo.orca"):
                    writer.wait()
                    writer.submit(3, 1, state_of(3), {})
                    writer.wait()
                assert [record.getMessage()[:31] for record in caplog.records] == ["No more checkpoints are written"]
        finally:
            writer.close()


class TestKeeping:
    @given(
        st.lists(st.one_of(st.floats(0, 1), st.just(float("nan"))), min_size=1, max_size=12),
        st.integers(1, 4),
        st.sampled_from(["min", "max"]),
        st.integers(0, 12),
    )
    def test_the_last_ones_and_the_best(self, values, keep, mode, interrupted):
        checkpoints = Checkpoints("folder", "Net", keep, "val_loss", mode)
        keeper, there, best = Keeper(checkpoints), set(), None
        for number, value in enumerate(values):
            if number == interrupted:
                keeper, before = Keeper(checkpoints), keeper.state()
                keeper.load(before)
            is_best = keeper.add(number, {"val_loss": value}, complete=True)
            there = there | {number} - set(keeper.drop())
            there -= set(range(number + 1)) - set(keeper.state()["numbers"])
            if is_best:
                best = number
            known = [each for each in values[: number + 1] if each == each]
            if known:
                assert values[best] == (min if mode == "min" else max)(known)
            assert there == {*range(max(0, number + 1 - keep), number + 1), *([] if best is None else [best])}

    def test_a_figure_that_is_not_there(self):
        keeper = Keeper(Checkpoints("folder", "Net", 2, "val_loss"))
        assert keeper.add(1, {}, complete=False) is False
        with pytest.raises(InvalidArgumentError, match=r"'train_loss'.*got 'val_loss'"):
            keeper.add(2, {"train_loss": 0.5}, complete=True)

    @pytest.mark.engines("local")
    def test_nothing_is_validated(self, engine, tmp_path):
        est = regression(model_dir=str(tmp_path))
        with pytest.raises(InvalidArgumentError, match=r"ModelCheckpoint is to follow 'val_loss'.*validation_data"):
            est.fit(REGRESSION, batch_size=8, callbacks=[ModelCheckpoint(monitor="val_loss")])


class Dying(TrainingOperator):
    """Rank 0 dies once, in its sixth step."""

    def train_batch(self, batch, batch_info):
        mark = Path(self.config["folder"], "died")
        if self.world_rank == 0 and self.global_step == 5 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().train_batch(batch, batch_info)


@pytest.mark.engines("local")
class TestAnywhere:
    def recovered(self, tmp_path, model_dir):
        """An estimator whose fit lost a worker."""
        options = {"num_workers": 2, "backend": "torch_distributed", "model_dir": model_dir}
        est = regression(**options, config={"folder": str(tmp_path)}, training_operator_cls=Dying)
        est.fit(REGRESSION, epochs=3, batch_size=8, checkpoint_trigger="2ba")
        assert est.result_.restarts == 1
        calm = regression(num_workers=2, backend="torch_distributed")
        calm.fit(REGRESSION, epochs=3, batch_size=8)
        assert (weights(est.get_model()) == weights(calm.get_model())).all()
        return est

    def test_on_an_object_store(self, engine, tmp_path, s3_bucket):
        est = self.recovered(tmp_path, f"{s3_bucket}/runs")
        assert est.result_.last_checkpoint.startswith(f"{s3_bucket}/runs/")
        again = regression(num_workers=2, backend="torch_distributed").load_orca_checkpoint(f"{s3_bucket}/runs")
        resumed = regression(num_workers=2, backend="torch_distributed", model_dir=f"{s3_bucket}/runs")
        resumed.fit(REGRESSION, epochs=3, batch_size=8, resume="auto")
        assert (weights(resumed.get_model()) == weights(est.get_model())).all()
        assert again.load(est.result_.last_checkpoint) is again

    def test_workers_that_do_not_see_the_drivers_disk(self, engine, tmp_path, monkeypatch):
        """Rank 0 sends the files to the driver then."""
        delivered = []
        deliver = Parcel.deliver
        monkeypatch.setattr(Parcel, "deliver", lambda parcel: (delivered.append(parcel), deliver(parcel)))
        monkeypatch.setattr(type(engine), "one_machine", False)
        est = self.recovered(tmp_path, str(tmp_path / "runs"))
        assert Path(est.result_.last_checkpoint).is_file()
        written = [Path(path).name.split(".")[1] for parcel in delivered for path, _ in parcel.written]
        assert written[:4] == ["3", "3", "5", "5"]


@pytest.mark.engines("local")
def test_a_state_that_is_not_plain_ends_no_fit_that_did_not_ask_for_checkpoints(engine, tmp_path, caplog):
    est = regression(training_operator_cls=NotPlain, model_dir=str(tmp_path))
    est.fit(REGRESSION, batch_size=8)
    assert "No more checkpoints are written" in caplog.text
    with pytest.raises(CheckpointError, match=r"builtins\.object"):
        regression(training_operator_cls=NotPlain, model_dir=str(tmp_path)).fit(
            REGRESSION, batch_size=8, checkpoint_trigger="1ep"
        )


class NotPlain(TrainingOperator):
    def state_dict(self):
        return {"thing": object()}
