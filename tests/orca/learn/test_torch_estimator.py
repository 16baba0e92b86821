"""The PyTorch estimator as published: what `from_torch` takes, and the conventions of its backends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from nets import (
    CLASSES,
    LABELS,
    REGRESSION,
    ROWS,
    X,
    Y,
    by_hand,
    classifier,
    linear,
    make_loss,
    make_model,
    make_optimizer,
    make_scheduler,
    regression,
    weights,
)
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from zoo.orca.data import XShards
from zoo.orca.learn.metrics import MAE, MSE, Accuracy
from zoo.orca.learn.optimizers import SGD
from zoo.orca.learn.optimizers.schedule import Default, Exponential
from zoo.orca.learn.pytorch import Estimator, TrainingOperator
from zoo.orca.learn.trigger import EveryEpoch, SeveralIteration

local = pytest.mark.engines("local")
BACKENDS = ["bigdl", "torch_distributed", "horovod"]


def close(model, other, tolerance=1e-5):
    np.testing.assert_allclose(weights(model), weights(other), rtol=tolerance, atol=tolerance)


@torch.no_grad()
def loss_of(model):
    """The loss over all rows."""
    return float(nn.functional.mse_loss(model(torch.from_numpy(X)), torch.from_numpy(Y)))


class Watching(TrainingOperator):
    """Reports what an operator is given, beside training as usual."""

    def train_batch(self, batch, batch_info):
        seen = {"lr": self.optimizer.param_groups[0]["lr"], "bars": self.use_tqdm, "hidden": self.config.get("hidden")}
        return super().train_batch(batch, batch_info) | seen | {"told": batch_info.get("told")}


class Manual(Watching):
    """Steps its scheduler itself: after every second batch."""

    def train_batch(self, batch, batch_info):
        seen = super().train_batch(batch, batch_info)
        if batch_info["batch_idx"] % 2:
            self.scheduler.step()
        return seen


@local
class TestFromTorch:
    @pytest.mark.parametrize("backend", BACKENDS)
    def test_instances_and_creators(self, engine, backend):
        """Both train what plain torch trains, on two workers and with a scheduler."""
        model = linear()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduler = make_scheduler(optimizer, {})
        instances = {"model": model, "optimizer": optimizer, "loss": nn.MSELoss(), "scheduler_creator": scheduler}
        creators = {
            "model": make_model,
            "optimizer": make_optimizer,
            "loss": make_loss,
            "scheduler_creator": make_scheduler,
            "config": {"lr": 0.1, "gamma": 0.5},
        }
        for given in (instances, creators):
            est = Estimator.from_torch(**given, backend=backend, num_workers=2)
            est.fit(REGRESSION, epochs=3, batch_size=ROWS)
            close(est.get_model(), by_hand(3, gamma=0.5))

    def test_a_function_and_a_class_as_loss(self, engine):
        for loss in (nn.MSELoss, nn.functional.mse_loss, lambda output, target: ((output - target) ** 2).mean()):
            close(regression(loss=loss).fit(REGRESSION, batch_size=ROWS).get_model(), by_hand(1))

    def test_orca_optimizers(self, engine):
        est = regression(optimizer=SGD(learningrate=0.1, learningrate_schedule=Default()))
        close(est.fit(REGRESSION, epochs=2, batch_size=ROWS).get_model(), by_hand(2))
        est = regression(optimizer=SGD(learningrate=0.1, learningrate_schedule=Exponential(1, 0.5)))
        close(est.fit(REGRESSION, epochs=3, batch_size=ROWS).get_model(), by_hand(3, gamma=0.5))

    def test_no_optimizer_is_orcas_sgd(self, engine):
        est = Estimator.from_torch(model=linear(), loss=nn.MSELoss())
        close(est.fit(REGRESSION, epochs=2, batch_size=ROWS).get_model(), by_hand(2, lr=1e-3))

    @pytest.mark.parametrize(
        ("freq", "operator", "rates"),
        [
            ("batch", Watching, [0.1 / 4, 0.1 / 32]),
            ("epoch", Watching, [0.1, 0.05]),
            ("manual", Manual, [0.05, 0.025]),
            (None, Watching, [0.1, 0.1]),
        ],
    )
    def test_when_the_scheduler_steps(self, engine, freq, operator, rates):
        """The rate of the last of three steps of each epoch, as a worker sees it."""
        est = Estimator.from_torch(
            model=make_model,
            optimizer=make_optimizer,
            loss=make_loss,
            scheduler_creator=make_scheduler,
            scheduler_step_freq=freq,
            training_operator_cls=operator,
            backend="torch_distributed",
        )
        first = est.fit(REGRESSION, batch_size=8)
        again = est.fit(REGRESSION, batch_size=8)  # the scheduler goes on where it was
        assert [stats["last_lr"] for stats in (*first, *again)] == pytest.approx(rates)

    def test_config_bars_and_info_reach_the_operator(self, engine):
        est = regression(
            "torch_distributed", training_operator_cls=Watching, use_tqdm=True, config={"hidden": 16, "shuffle": False}
        )
        (stats,) = est.fit(REGRESSION, info={"told": 3})
        assert (stats["bars"], stats["hidden"], stats["told"]) == (True, 16, 3)

    def test_the_hook_runs_on_each_worker_first(self, engine, tmp_path):
        def hook():
            (tmp_path / str(os.getpid())).touch()

        def model(config):
            assert list(tmp_path.iterdir())
            return linear()

        est = Estimator.from_torch(model=model, loss=nn.MSELoss(), initialization_hook=hook, num_workers=2)
        est.fit(REGRESSION)
        assert len(list(tmp_path.iterdir())) == 2
        assert not (tmp_path / str(os.getpid())).exists()

    def test_how_many_workers(self, engine):
        for options in ({"workers_per_node": 2}, {"num_workers": 2}, {"num_workers": 2, "workers_per_node": 4}):
            est = regression("torch_distributed", **options)
            assert est.estimator.num_workers == 2
            ((first, second),) = est.fit(REGRESSION, reduce_results=False)
            assert first["num_samples"] + second["num_samples"] == ROWS
        assert regression("torch_distributed").estimator.num_workers == 1

    def test_the_seed_is_of_first_weights_and_of_the_order(self, engine):
        def trained(seed):
            est = Estimator.from_torch(model=lambda config: nn.Linear(3, 1), loss=nn.MSELoss(), seed=seed)
            first = weights(est.get_model())
            return first, weights(est.fit(REGRESSION, batch_size=5).get_model())

        for one, same, other in zip(trained(1), trained(1), trained(2), strict=True):
            assert np.array_equal(one, same)
            assert not np.allclose(one, other)

    def test_the_callers_random_numbers_are_left_alone(self, engine):
        torch.manual_seed(3)
        expected = torch.rand(4)
        torch.manual_seed(3)
        est = Estimator.from_torch(model=lambda config: nn.Sequential(nn.Linear(3, 1), nn.Dropout()), loss=nn.MSELoss())
        est.fit(REGRESSION)
        est.get_model()
        est.predict(X)
        assert torch.equal(torch.rand(4), expected)

    def test_all_arguments_are_by_name(self):
        with pytest.raises(TypeError):
            Estimator.from_torch(linear(), None, nn.MSELoss())

    @pytest.mark.parametrize("backend", ["bigdl", "torch_distributed"])
    def test_the_callers_objects_are_left_alone(self, engine, backend):
        model = linear().eval()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        loss = nn.MSELoss()
        est = Estimator.from_torch(model=model, optimizer=optimizer, loss=loss, backend=backend)
        est.fit(REGRESSION, epochs=2)
        assert np.array_equal(weights(model), weights(linear()))
        assert not optimizer.state
        assert not model.training
        assert all(parameter.grad is None for parameter in model.parameters())
        assert not np.allclose(weights(est.get_model()), weights(model))

    def test_several_inputs(self, engine):
        class Sum(nn.Module):
            def __init__(self):
                super().__init__()
                self.line = linear()

            def forward(self, left, right):
                return self.line(left + right)

        est = regression(model=Sum(), optimizer=None)
        est.fit({"x": [X, X], "y": Y})
        frame = pd.DataFrame({"a": list(X), "b": list(X), "label": list(Y)})
        est.fit(frame, epochs=2, feature_cols=["a", "b"], label_cols=["label"])


@pytest.mark.engines("spark", "ray")
def test_an_engines_name_as_backend(engine):
    """ "spark" and "ray" are torch_distributed on that engine."""
    est = regression(engine.name, num_workers=2)
    (stats,) = est.fit(XShards.partition(REGRESSION, num_shards=3), batch_size=ROWS)
    assert stats["num_samples"] == ROWS
    close(est.get_model(), by_hand(1))


@local
class TestBigdl:
    def test_epochs_are_a_target(self, engine):
        est = regression()
        assert est.fit(REGRESSION, epochs=2, batch_size=ROWS) is est
        close(est.get_model(), by_hand(2))
        est.fit(REGRESSION, epochs=2, batch_size=ROWS)
        est.fit(REGRESSION, epochs=1, batch_size=ROWS)
        close(est.get_model(), by_hand(2))
        est.fit(REGRESSION, epochs=3, batch_size=ROWS)
        close(est.get_model(), by_hand(3))

    def test_a_loaded_model_brings_its_counters(self, engine, tmp_path):
        path = str(tmp_path / "line.pt")
        assert regression().fit(REGRESSION, batch_size=ROWS).save(path) == path
        est = regression()
        assert est.load(path) is est
        est.fit(REGRESSION, epochs=1, batch_size=ROWS)
        close(est.get_model(), by_hand(1))
        est.fit(REGRESSION, epochs=2, batch_size=ROWS)
        close(est.get_model(), by_hand(2))

    def test_the_optimizer_is_saved_beside_the_model(self, engine, tmp_path):
        model = linear()
        momentum = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        est = Estimator.from_torch(model=model, optimizer=momentum, loss=nn.MSELoss(), num_workers=2)
        est.fit(REGRESSION, epochs=2, batch_size=8).save(tmp_path / "deep" / "line.ckpt")
        assert {each.name for each in (tmp_path / "deep").iterdir()} == {"line.ckpt", "line_optim.ckpt"}
        straight = weights(est.fit(REGRESSION, epochs=4, batch_size=8).get_model())
        again = Estimator.from_torch(model=model, optimizer=momentum, loss=nn.MSELoss(), num_workers=2)
        again.load(tmp_path / "deep" / "line.ckpt").fit(REGRESSION, epochs=4, batch_size=8)
        assert np.array_equal(weights(again.get_model()), straight)

    def test_the_saved_file_is_a_state_dict(self, engine, tmp_path):
        est = regression().fit(REGRESSION)
        model = linear()
        model.load_state_dict(torch.load(est.save(str(tmp_path / "line.pt")), weights_only=True))
        assert np.array_equal(weights(model), weights(est.get_model()))

    def test_a_plain_state_dict_is_loaded(self, engine, tmp_path):
        trained = by_hand(5)
        torch.save(trained.state_dict(), tmp_path / "plain.pt")
        est = regression().load(str(tmp_path / "plain.pt"))
        assert np.array_equal(weights(est.get_model()), weights(trained))
        close(est.fit(REGRESSION, epochs=1, batch_size=ROWS).get_model(), by_hand(6))

    def test_load_takes_a_loss(self, engine, tmp_path):
        path = regression().save(str(tmp_path / "line.pt"))
        seen = []

        def loss(output, target):
            seen.append(output)
            return nn.functional.mse_loss(output, target)

        regression().load(path, loss=loss).fit(REGRESSION)
        assert seen  # the rows that are tried on the driver

    def test_evaluate_names_metrics_as_bigdl_does(self, engine):
        est = classifier(metrics=[Accuracy(), MAE()], loss=nn.CrossEntropyLoss())
        with torch.no_grad():
            expected = (linear(2)(torch.from_numpy(X)).argmax(dim=1).numpy() == LABELS).mean()
        figures = est.evaluate({"x": X, "y": LABELS}, validation_metrics=Accuracy())
        assert figures == {"Top1Accuracy": pytest.approx(expected)}
        assert all(type(value) is float for value in figures.values())

    def test_metrics_of_a_call_are_for_that_call(self, engine):
        est = regression(metrics=MAE())
        assert set(est.evaluate(REGRESSION, validation_methods=[MSE()])) == {"MSE"}
        assert set(est.evaluate(REGRESSION, validation_metrics=[MAE(), MSE()])) == {"MAE", "MSE"}
        assert set(est.evaluate(REGRESSION)) == {"MAE"}
        est.fit(REGRESSION, validation_data=REGRESSION, validation_methods=MSE())
        assert set(est.evaluate(REGRESSION)) == {"MAE"}

    def test_five_losses_and_four_validations(self, engine, tmp_path):
        """With one step an epoch, EveryEpoch's first call sees epoch 2 already."""
        est = classifier(metrics=[Accuracy()])
        assert est.get_train_summary("Loss") is None
        est.set_tensorboard(str(tmp_path), "app")
        four = {"x": X[:4], "y": LABELS[:4]}
        est.fit(four, epochs=5, batch_size=4, validation_data=four, checkpoint_trigger=EveryEpoch())
        losses = est.get_train_summary("Loss")
        assert [iteration for iteration, _, _ in losses] == [1, 2, 3, 4, 5]
        assert losses[0][1] > losses[4][1]
        assert [len(est.get_train_summary(tag)) for tag in (None, "Throughput", "LearningRate")] == [5, 5, 5]
        assert [entry[0] for entry in est.get_validation_summary("Top1Accuracy")] == [2, 3, 4, 5]
        assert any((tmp_path / "app" / "train").iterdir())
        assert any((tmp_path / "app" / "validation").iterdir())

    def test_every_epoch_of_two_steps_is_validated(self, engine, tmp_path):
        est = classifier(metrics=[Accuracy()])
        est.set_tensorboard(str(tmp_path), "app")
        est.fit(CLASSES, epochs=3, batch_size=12, validation_data=CLASSES)
        assert [entry[0] for entry in est.get_validation_summary("Top1Accuracy")] == [2, 4, 6]

    def test_checkpoints_and_summaries_below_model_dir(self, engine, tmp_path):
        est = regression(model_dir=str(tmp_path), metrics=MSE())
        est.fit(REGRESSION, epochs=2, batch_size=8, validation_data=REGRESSION, checkpoint_trigger=EveryEpoch())
        est.fit(REGRESSION, epochs=3, batch_size=8, checkpoint_trigger=EveryEpoch())
        (run,) = tmp_path.iterdir()
        assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d", run.name)
        assert {each.name for each in (run / "summary").iterdir()} == {"train", "validation"}
        folders = list((run / "models").iterdir())
        assert all(re.fullmatch(r"\d{8}_\d{6}", each.name) for each in folders)
        assert all((each / "fit.json").is_file() for each in folders)
        files = sorted(file.name for folder in folders for file in folder.iterdir() if file.name != "fit.json")
        assert [name for name in files if name.startswith("model")] == ["model.10", "model.4", "model.7"]
        pattern = r"optimMethod-TorchModel[0-9a-f]+\.(4|7|10)"
        assert len([name for name in files if re.fullmatch(pattern, name)]) == 3 == len(files) - 3
        assert [entry[0] for entry in est.get_train_summary("Loss")] == list(range(1, 10))

    def test_nothing_is_written_without_a_folder(self, engine, in_folder, caplog):
        est = regression(metrics=MSE())
        est.fit(REGRESSION, validation_data=REGRESSION, checkpoint_trigger=EveryEpoch())
        assert not list(in_folder.iterdir())
        assert "no model_dir" in caplog.text

    def test_checkpoints_by_iteration(self, engine, tmp_path):
        regression(model_dir=str(tmp_path)).fit(REGRESSION, batch_size=6, checkpoint_trigger=SeveralIteration(2))
        assert {file.name for file in tmp_path.rglob("model.*")} == {"model.2", "model.4"}

    def test_load_orca_checkpoint(self, engine, tmp_path):
        est = regression(model_dir=str(tmp_path))
        weights_after = []
        for epochs in (1, 2):
            est.fit(REGRESSION, epochs=epochs, batch_size=8, checkpoint_trigger=EveryEpoch())
            weights_after.append(weights(est.get_model()))
        newest, older = regression(), regression()
        assert newest.load_orca_checkpoint(str(tmp_path)) is newest
        assert np.array_equal(weights(newest.get_model()), weights_after[1])
        prefix = re.sub(r"optimMethod-(.*)\.4", r"\1", next(tmp_path.rglob("optimMethod-*.4")).name)
        older.load_orca_checkpoint(str(tmp_path), version=4, prefix=prefix)
        assert np.array_equal(weights(older.get_model()), weights_after[0])
        older.fit(REGRESSION, epochs=2, batch_size=8)
        assert np.array_equal(weights(older.get_model()), weights_after[1])
        folder = regression().load(str(tmp_path))
        assert np.array_equal(weights(folder.get_model()), weights_after[1])

    def test_the_newest_run_is_loaded(self, engine, tmp_path):
        regression(model_dir=str(tmp_path)).fit(REGRESSION, 3, 8, checkpoint_trigger=EveryEpoch())
        last = regression(model_dir=str(tmp_path)).fit(REGRESSION, 1, 8, checkpoint_trigger=EveryEpoch())
        assert len(list(tmp_path.iterdir())) == 2  # though both started within a second
        loaded = regression().load(str(tmp_path))
        assert np.array_equal(weights(loaded.get_model()), weights(last.get_model()))

    def test_labels_reach_the_loss_as_they_are(self, engine):
        def loss(output, target):
            assert target.shape == (len(output),)
            assert target.dtype == torch.int64
            return nn.functional.cross_entropy(output, target)

        classifier(loss=loss).fit(CLASSES)

    def test_rows_without_labels_have_the_label_minus_one(self, engine):
        def loss(output, target):
            assert (target == -1).all()
            return output.square().mean()

        regression(loss=loss).fit(XShards.partition({"x": X}))

    def test_labels_cols_is_another_spelling(self, engine):
        frame = pd.DataFrame({"feature": list(X), "label": list(Y)})
        est = regression(metrics=MSE())
        est.fit(frame, batch_size=ROWS, feature_cols=["feature"], labels_cols=["label"])
        close(est.get_model(), by_hand(1))
        assert est.evaluate(frame, feature_cols="feature", labels_cols="label") == est.evaluate(REGRESSION)

    def test_get_model_is_a_copy(self, engine):
        est = regression().fit(REGRESSION, epochs=1)
        kept = dict(est.get_model().named_parameters())
        est.fit(REGRESSION, epochs=2)
        assert not np.allclose(kept["weight"].detach(), est.get_model().weight.detach())
        with torch.no_grad():
            est.get_model().weight.zero_()
        assert est.get_model().weight.abs().sum() > 0

    def test_get_model_has_the_trained_buffers(self, engine):
        model = nn.Sequential(nn.BatchNorm1d(3, momentum=1.0), linear())
        est = regression(model=model, optimizer=None).fit(REGRESSION, batch_size=ROWS)
        np.testing.assert_allclose(est.get_model()[0].running_mean.numpy(), X.mean(axis=0), atol=1e-6)

    def test_clipping(self, engine):
        def step(est):
            return weights(est.fit(REGRESSION, batch_size=ROWS).get_model()) - weights(linear())

        free = step(regression(num_workers=2))
        est = regression(num_workers=2)
        est.set_l2_norm_gradient_clipping(0.01)
        np.testing.assert_allclose(np.linalg.norm(step(est)), 0.1 * 0.01, rtol=1e-4)
        est = regression(num_workers=2)
        est.set_constant_gradient_clipping(-0.02, 0.01)
        np.testing.assert_allclose(step(est), np.clip(free / -0.1, -0.02, 0.01) * -0.1, atol=1e-6)
        est = regression(num_workers=2)
        est.set_constant_gradient_clipping(-0.02, 0.01)
        est.clear_gradient_clipping()
        np.testing.assert_allclose(step(est), free, atol=1e-6)

    def test_a_loader_and_its_creator(self, engine):
        def creator(config, batch_size):
            return DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), batch_size=batch_size)

        def creator_of_config(config):
            return creator(config, config["batch_size"])

        loaders = [(creator({}, ROWS), None), (creator, ROWS), (creator_of_config, ROWS)]
        for data, batch_size in loaders:
            est = regression(metrics=MSE(), num_workers=2)
            est.fit(data, batch_size=batch_size, validation_data=data)
            close(est.get_model(), by_hand(1))
            assert set(est.evaluate(data, batch_size=batch_size)) == {"MSE"}

    def test_shutdown_gives_back_and_the_estimator_still_works(self, engine):
        est = regression(metrics=MSE()).fit(REGRESSION)
        est.shutdown()
        est.evaluate(REGRESSION)

    def test_the_representation_says_what_it_is(self, engine):
        assert repr(regression().fit(REGRESSION)) == "PyTorchSparkEstimator(Linear, backend='bigdl', epochs done: 1)"


@local
class TestRayConventions:
    def test_statistics(self, engine):
        est = regression("torch_distributed", num_workers=2)
        stats = est.fit(REGRESSION, epochs=2, batch_size=ROWS)
        assert [set(each) for each in stats] == [
            {"epoch", "batch_count", "num_samples", "train_loss", "last_train_loss"}
        ] * 2
        assert [(each["epoch"], each["batch_count"], each["num_samples"]) for each in stats] == [(1, 1, 24), (2, 1, 24)]
        assert [each["train_loss"] for each in stats] == pytest.approx([loss_of(by_hand(n)) for n in (0, 1)], rel=1e-5)

    def test_epochs_are_an_amount(self, engine):
        est = regression("torch_distributed")
        est.fit(REGRESSION, epochs=2, batch_size=ROWS)
        (third,) = est.fit(REGRESSION, epochs=1, batch_size=ROWS)
        assert third["epoch"] == 3
        close(est.get_model(), by_hand(3))

    def test_the_mean_loss_is_by_samples(self, engine):
        (stats,) = regression("torch_distributed", optimizer=make_frozen, num_workers=2).fit(REGRESSION, batch_size=10)
        assert stats["train_loss"] == pytest.approx(loss_of(linear()), rel=1e-5)
        assert stats["batch_count"] == 3

    def test_workers_by_themselves(self, engine):
        est = regression("torch_distributed", num_workers=2)
        epochs = est.fit(REGRESSION, epochs=2, batch_size=10, reduce_results=False)
        assert [len(workers) for workers in epochs] == [2, 2]
        assert sum(worker["num_samples"] for worker in epochs[0]) == ROWS

    def test_a_profile_is_added_when_asked_for(self, engine):
        est = regression("torch_distributed")
        (stats,) = est.fit(REGRESSION, profile=True)
        assert stats["profile"]["mean_train_batch_s"] > 0
        assert "profile" in est.evaluate(REGRESSION, profile=True)
        assert "profile" not in est.evaluate(REGRESSION)

    def test_validation_adds_figures_to_every_epoch(self, engine):
        est = classifier("torch_distributed", metrics=Accuracy(), num_workers=2)
        stats = est.fit(CLASSES, epochs=2, batch_size=ROWS, validation_data=CLASSES)
        assert all({"val_loss", "val_Accuracy", "val_num_samples"} <= set(each) for each in stats)
        assert stats[1]["val_Accuracy"] == est.evaluate(CLASSES)["Accuracy"]

    def test_evaluate(self, engine):
        est = classifier("torch_distributed", metrics=[Accuracy()], num_workers=2)
        figures = est.evaluate(CLASSES, batch_size=10)
        assert set(figures) == {"Accuracy", "val_loss", "num_samples"}
        assert figures["num_samples"] == ROWS
        assert est.evaluate(CLASSES, batch_size=10, num_steps=2)["num_samples"] == 20
        assert set(classifier("torch_distributed").evaluate(CLASSES)) == {"val_loss", "num_samples"}

    def test_save_and_load(self, engine, tmp_path):
        path = str(tmp_path / "state")
        est = regression("torch_distributed", optimizer=make_momentum)
        est.fit(REGRESSION, epochs=2, batch_size=8)
        assert est.save(path) == path
        state = torch.load(path, weights_only=True)
        assert {"epoch", "models", "optimizers", "schedulers", "operator"} <= set(state)
        again = regression("torch_distributed", optimizer=make_momentum)
        assert again.load(path) is again
        (theirs,), (ours,) = est.fit(REGRESSION, batch_size=8), again.fit(REGRESSION, batch_size=8)
        assert theirs == ours
        assert ours["epoch"] == 3
        assert np.array_equal(weights(again.get_model()), weights(est.get_model()))
        torch.save(linear().state_dict(), tmp_path / "plain")
        again.load(tmp_path / "plain")
        assert np.array_equal(weights(again.get_model()), weights(linear()))

    def test_checkpoints(self, engine, tmp_path):
        est = regression("torch_distributed", model_dir=str(tmp_path))
        est.fit(REGRESSION, epochs=2, batch_size=8, checkpoint_trigger=EveryEpoch())
        again = regression("torch_distributed").load_orca_checkpoint(str(tmp_path))
        assert np.array_equal(weights(again.get_model()), weights(est.get_model()))
        assert again.fit(REGRESSION)[0]["epoch"] == 3

    def test_shutdown_takes_force(self, engine):
        regression("torch_distributed").shutdown(force=True)


def make_frozen(model, config):
    return torch.optim.SGD(model.parameters(), lr=0.0)


def make_momentum(model, config):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


@pytest.mark.engines("ray")
def test_remote_workers_on_ray(engine):
    import ray

    est = regression("torch_distributed", num_workers=2)
    est.fit(REGRESSION)
    states = ray.get([worker.state_dict.remote() for worker in est.estimator.remote_workers])
    assert len(states) == est.estimator.num_workers == 2
    for state in states:
        assert {"epoch", "operator", "models", "optimizers", "schedulers"} <= set(state)
        assert torch.equal(state["models"][0]["weight"], est.get_model().weight)


@local
def test_a_function_on_horovods_workers(engine):
    def who():
        import horovod.torch as hvd

        return hvd.rank(), hvd.size()

    est = regression("horovod", num_workers=2)
    assert est.estimator.horovod_runner.run(who) == [(0, 2), (1, 2)]


class Failing(nn.Module):
    """Raises an error of its own in the second step."""

    def __init__(self):
        super().__init__()
        self.line = linear()
        self.calls = 0

    def forward(self, x):
        self.calls += self.training
        if self.calls == 2:
            raise LookupError("the second batch is unlucky")
        return self.line(x)


@pytest.mark.parametrize("backend", ["bigdl", "torch_distributed"])
def test_what_forward_raises_arrives_as_it_is(engine, backend):
    est = regression(backend, model=Failing(), optimizer=None, num_workers=2)
    with pytest.raises(LookupError, match="the second batch is unlucky") as caught:
        est.fit(XShards.partition(REGRESSION, num_shards=2), batch_size=8)
    assert caught.value.rank in (0, 1)
    assert caught.value.step == 2
    assert "in forward" in caught.value.remote_traceback
    assert np.array_equal(weights(est.get_model()), weights(linear()))


QUIET = """
    import numpy as np
    import torch
    from zoo.orca import init_orca_context, stop_orca_context
    from zoo.orca.learn.metrics import Accuracy
    from zoo.orca.learn.optimizers import Adam
    from zoo.orca.learn.pytorch import Estimator

    def make_optimizer(net, config):
        return torch.optim.Adam(net.parameters())

    if __name__ == "__main__":
        init_orca_context("embedded", cores=2)
        x = np.random.default_rng(0).random((40, 3), dtype=np.float32)
        y = (x.sum(axis=1) > 1.5).astype(np.int64)
        for backend, optimizer in (("bigdl", Adam()), ("torch_distributed", make_optimizer)):
            est = Estimator.from_torch(
                model=torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2)),
                optimizer=optimizer,
                loss=torch.nn.CrossEntropyLoss(),
                scheduler_creator=lambda optimizer, config: torch.optim.lr_scheduler.StepLR(optimizer, 1),
                metrics=Accuracy(),
                backend=backend,
                num_workers=2,
            )
            est.fit((x, y), epochs=2, batch_size=16, validation_data=(x, y))
            est.evaluate((x, y))
        stop_orca_context()
"""


def test_a_run_is_silent_where_there_is_no_terminal(tmp_path):
    script = tmp_path / "quiet.py"
    script.write_text(textwrap.dedent(QUIET))
    command = [sys.executable, "-W", "default::UserWarning", str(script)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    assert [file.name for file in Path(tmp_path).iterdir()] == ["quiet.py"]
