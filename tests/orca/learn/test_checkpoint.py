"""Checkpoints and saved models: written whole or not at all, read without running code, refused with a reason."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import textwrap
from collections import Counter, OrderedDict

import numpy as np
import pytest
import torch
from nets import REGRESSION, by_hand, classifier, linear, make_optimizer, regression, weights

from zoo.orca.errors import CheckpointError, PathNotFoundError
from zoo.orca.learn.checkpoint import Checkpoints, find_checkpoint, read_checkpoint, read_state, run_folder, write_state
from zoo.orca.learn.pytorch import TrainingOperator
from zoo.orca.learn.trigger import EveryEpoch

KILLED = """
    import os, signal, sys
    import torch
    from zoo.orca.learn.checkpoint import Checkpoints, write_state

    os.replace = lambda source, target: os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[1] == "state":
        write_state(sys.argv[2], {"w": torch.ones(100_000)})
    else:
        Checkpoints(sys.argv[2], "Net").write(9, {"models": [{"w": torch.ones(3)}], "epoch": 2})
"""


def run_killed(what, path):
    command = [sys.executable, "-c", textwrap.dedent(KILLED), what, str(path)]
    return subprocess.run(command, timeout=120, check=False).returncode


class TestWholeOrNotAtAll:
    def test_killed_before_the_rename(self, tmp_path):
        """The file that was there is still there, and whole."""
        write_state(tmp_path / "model.pt", {"w": torch.zeros(3)})
        assert run_killed("state", tmp_path / "model.pt") == -signal.SIGKILL
        assert torch.equal(read_state(tmp_path / "model.pt")["w"], torch.zeros(3))

    def test_killed_in_a_first_checkpoint(self, tmp_path):
        assert run_killed("checkpoint", tmp_path) == -signal.SIGKILL
        assert not list(tmp_path.glob("model.*"))
        with pytest.raises(ValueError, match="no checkpoint was found"):
            find_checkpoint(str(tmp_path))

    def test_a_checkpoint_is_there_when_its_model_is(self, tmp_path, monkeypatch):
        """The optimizer is written first, so a model that is found has one."""
        replaced = []
        monkeypatch.setattr(os, "replace", lambda source, target: replaced.append(os.path.basename(target)))
        Checkpoints(str(tmp_path), "Net").write(3, {"models": [{}], "epoch": 1})
        assert replaced == ["optimMethod-Net.3", "model.3"]

    def test_a_failed_write_leaves_no_file(self, tmp_path, monkeypatch):
        def full(source, target):
            raise OSError("No space left on device")

        monkeypatch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            write_state(tmp_path / "model.pt", {"w": torch.zeros(3)})
        assert not list(tmp_path.iterdir())


class TestPlainData:
    def test_what_is_written_is_read_without_code(self, tmp_path):
        state = {
            "models": [OrderedDict(w=torch.arange(4.0), n=torch.tensor(3))],
            "optimizers": [{"state": {0: {"step": torch.tensor(1.0)}}, "param_groups": [{"betas": (0.9, 0.99)}]}],
            "schedulers": [{"milestones": Counter([1, 2]), "text": "a", "none": None, "set": {1}}],
        }
        write_state(tmp_path / "state", state)
        found = torch.load(tmp_path / "state", weights_only=True)
        assert torch.equal(found["models"][0]["w"], torch.arange(4.0))
        assert found["schedulers"] == state["schedulers"]

    @pytest.mark.parametrize("value", [np.float64(1.0), np.zeros(2), range(3), object(), lambda: 1])
    def test_what_could_not_be_read_back_is_not_written(self, tmp_path, value):
        with pytest.raises(CheckpointError, match=r"state\['operator'\]\['own'\]\[1\]"):
            write_state(tmp_path / "state", {"operator": {"own": [1, value]}})
        assert not list(tmp_path.iterdir())


class Evil:
    """Code in a pickle: it makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def as_torch(value, path):
    torch.save(value, path)


def as_pickle(value, path):
    path.write_bytes(pickle.dumps(value, protocol=2))


class TestRefused:
    @pytest.mark.parametrize("backend", ["bigdl", "torch_distributed"])
    @pytest.mark.parametrize("write", [as_torch, as_pickle])
    def test_code_is_not_run(self, tmp_path, backend, write):
        write({"models": [Evil(str(tmp_path / "ran"))]}, tmp_path / "evil.pt")
        est = regression(backend)
        with pytest.raises(CheckpointError, match=r"holds more than tensors and plain data.*torch.save") as caught:
            est.load(str(tmp_path / "evil.pt"))
        assert isinstance(caught.value, ValueError)
        assert not (tmp_path / "ran").exists()
        assert np.array_equal(weights(est.get_model()), weights(linear()))

    def test_a_whole_model_is_refused_though_torch_saved_it(self, tmp_path):
        torch.save(linear(), tmp_path / "module.pt")
        with pytest.raises(CheckpointError, match=r"torch.save\(model.state_dict\(\), path\)"):
            regression().load(str(tmp_path / "module.pt"))

    @pytest.mark.parametrize(
        "damage", [lambda raw: b"", lambda raw: raw[: len(raw) // 2], lambda raw: b"no torch file"]
    )
    def test_damaged_files(self, tmp_path, damage):
        path = tmp_path / "line.pt"
        regression().save(str(path))
        path.write_bytes(damage(path.read_bytes()))
        with pytest.raises(CheckpointError, match=r"line.pt cannot be read: it is damaged"):
            regression().load(str(path))

    def test_one_changed_bit_of_a_weight(self, tmp_path):
        path = tmp_path / "line.pt"
        est = regression()
        est.save(str(path))
        whole = bytearray(path.read_bytes())
        where = whole.index(weights(est.get_model()).astype(np.float32).tobytes()[:4])
        whole[where] ^= 1
        path.write_bytes(whole)
        with pytest.raises(CheckpointError, match=r"it is damaged.*is not what was written"):
            regression().load(str(path))

    def test_a_damaged_optimizer_file(self, tmp_path):
        regression().save(str(tmp_path / "line.pt"))
        (tmp_path / "line_optim.pt").write_bytes(b"half")
        with pytest.raises(CheckpointError, match=r"line_optim.pt cannot be read"):
            regression().load(str(tmp_path / "line.pt"))

    @pytest.mark.parametrize("backend", ["bigdl", "torch_distributed"])
    def test_a_file_of_another_model(self, tmp_path, backend):
        classifier(backend).save(str(tmp_path / "classes.pt"))
        est = regression(backend)
        with pytest.raises(CheckpointError, match=r"classes.pt was written for another model.*size mismatch.*Linear"):
            est.load(str(tmp_path / "classes.pt"))
        assert np.array_equal(weights(est.get_model()), weights(linear()))

    @pytest.mark.parametrize("backend", ["bigdl", "torch_distributed"])
    def test_files_that_hold_something_else(self, tmp_path, backend):
        torch.save([1, 2], tmp_path / "list.pt")
        torch.save({"models": [1, 2]}, tmp_path / "two.pt")
        torch.save({"epoch": 3}, tmp_path / "rest.pt")
        with pytest.raises(CheckpointError, match="holds a list"):
            regression(backend).load(str(tmp_path / "list.pt"))
        with pytest.raises(CheckpointError, match=r"does not hold the weights of 1 model"):
            regression(backend).load(str(tmp_path / "two.pt"))
        with pytest.raises(CheckpointError, match="another model"):
            regression(backend).load(str(tmp_path / "rest.pt"))

    def test_the_state_of_another_optimizer(self, tmp_path):
        def adam(model, config):
            return torch.optim.Adam(model.parameters())

        state = {
            "models": [linear().state_dict()],
            "optimizers": [adam(linear(), {}).state_dict()],
        }
        write_state(tmp_path / "adam", state)
        est = regression("torch_distributed", optimizer=make_optimizer)
        with pytest.raises(CheckpointError, match=r"other optimizer\(s\) than this estimator's \(SGD\)"):
            est.load(str(tmp_path / "adam"))
        regression("torch_distributed", optimizer=adam).load(str(tmp_path / "adam"))

    def test_files_that_are_not_there(self, tmp_path):
        with pytest.raises(PathNotFoundError, match="there is no file") as caught:
            regression().load(str(tmp_path / "nothing.pt"))
        assert isinstance(caught.value, FileNotFoundError)
        with pytest.raises(PathNotFoundError, match="there is no folder"):
            regression().load_orca_checkpoint(str(tmp_path / "nothing"))
        with pytest.raises(ValueError, match=r"no checkpoint was found below .*checkpoint_trigger=EveryEpoch\(\)"):
            regression().load(str(tmp_path))


class TestFolders:
    def fill(self, folder, number, value, name="Net"):
        Checkpoints(str(folder), name).write(number, {"models": [{"w": torch.tensor(value)}], "epoch": number})

    def test_the_newest_run_wins_over_the_highest_number(self, tmp_path):
        self.fill(tmp_path / "2024-01-01_10-00-00" / "models" / "20240101_100001", 90, 1.0)
        self.fill(tmp_path / "2024-01-02_10-00-00" / "models" / "20240102_100001", 9, 2.0)
        self.fill(tmp_path / "2024-01-02_10-00-00" / "models" / "20240102_100001", 10, 3.0)
        assert read_checkpoint(str(tmp_path))["models"][0]["w"] == 3.0
        assert read_checkpoint(str(tmp_path))["epoch"] == 10
        assert read_checkpoint(str(tmp_path), version=90)["models"][0]["w"] == 1.0
        with pytest.raises(ValueError, match="with the number 11"):
            read_checkpoint(str(tmp_path), version=11)

    def test_a_prefix_chooses_among_models(self, tmp_path):
        self.fill(tmp_path / "20240101_100000", 4, 1.0, "Left")
        self.fill(tmp_path / "20240101_100001", 4, 2.0, "Right")
        assert read_checkpoint(str(tmp_path), prefix="Left")["models"][0]["w"] == 1.0
        assert read_checkpoint(str(tmp_path), prefix="Right")["models"][0]["w"] == 2.0
        with pytest.raises(ValueError, match="no checkpoint"):
            read_checkpoint(str(tmp_path), prefix="Other")

    def test_runs_of_one_second_do_not_share_a_folder(self, tmp_path):
        folders = [run_folder(str(tmp_path)) for _ in range(3)]
        assert sorted(folders) == folders
        assert len(set(folders)) == 3

    def test_other_files_are_no_checkpoints(self, tmp_path):
        self.fill(tmp_path / "20240101_100000", 4, 1.0)
        (tmp_path / "20240101_100000" / ".model.9.1234").write_bytes(b"half")
        (tmp_path / "model.txt").write_text("notes")
        assert find_checkpoint(str(tmp_path))[1] == 4


class NotPlain(TrainingOperator):
    def state_dict(self):
        return {"mean": np.zeros(3)}


@pytest.mark.engines("local")
def test_a_state_that_could_not_be_read_back_stops_the_checkpoint(engine, tmp_path):
    est = regression(training_operator_cls=NotPlain, model_dir=str(tmp_path))
    with pytest.raises(CheckpointError, match=r"numpy.ndarray at state\['operator'\]\['own'\]\['mean'\]"):
        est.fit(REGRESSION, batch_size=8, checkpoint_trigger=EveryEpoch())
    assert not list(tmp_path.rglob("model.*"))


@pytest.mark.engines("local")
def test_every_backend_reads_the_others_files(engine, tmp_path):
    bigdl = regression(num_workers=2).fit(REGRESSION, epochs=2, batch_size=24)
    bigdl.save(str(tmp_path / "bigdl.pt"))
    ray = regression("torch_distributed", num_workers=2).load(str(tmp_path / "bigdl.pt"))
    ray.fit(REGRESSION, batch_size=24)
    np.testing.assert_allclose(weights(ray.get_model()), weights(by_hand(3)), atol=1e-5)
    ray.save(str(tmp_path / "ray.pt"))
    back = regression().load(str(tmp_path / "ray.pt")).fit(REGRESSION, epochs=2, batch_size=24)
    np.testing.assert_allclose(weights(back.get_model()), weights(by_hand(3)), atol=1e-5)
