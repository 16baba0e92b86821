"""TrainingOperator: every hook, what hooks are told, and several models at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from nets import CLASSES, REGRESSION, ROWS, X, Y, by_hand, classifier, linear, make_scheduler, regression, weights
from torch import nn

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.metrics import MSE, Accuracy
from zoo.orca.learn.pytorch import Estimator, TrainingOperator

pytestmark = pytest.mark.engines("local")
RAY = "torch_distributed"


def first(stats):
    """The figures of a fit of one epoch."""
    (epoch,) = stats
    return epoch


class Described(TrainingOperator):
    """Tells what it is given."""

    def setup(self, config):
        self.ready = (config["name"], self.model is not None, self.optimizer is not None)

    def train_epoch(self, iterator, info):
        figures = super().train_epoch(iterator, info)
        properties = {
            "config": self.config["name"],
            "one model": self.model is self.models[0] and len(self.models) == 1,
            "one optimizer": self.optimizer is self.optimizers[0] and len(self.optimizers) == 1,
            "one scheduler": self.scheduler is self.schedulers[0] and len(self.schedulers) == 1,
            "loss": float(self.criterion(torch.ones(2), torch.zeros(2))),
            "rank": self.world_rank,
            "fp16": self.use_fp16,
            "tqdm": self.use_tqdm,
        }
        return figures | {"properties": properties, "ready": self.ready, "info": dict(info), "batches": len(iterator)}


def test_properties_and_setup(engine):
    est = regression(
        RAY,
        training_operator_cls=Described,
        config={"name": "line"},
        scheduler_creator=make_scheduler,
        scheduler_step_freq="epoch",
        num_workers=2,
    )
    ((left, right),) = est.fit(REGRESSION, batch_size=8, info={"mine": 1}, reduce_results=False)
    assert left["properties"] == {
        "config": "line",
        "one model": True,
        "one optimizer": True,
        "one scheduler": True,
        "loss": 1.0,
        "rank": 0,
        "fp16": False,
        "tqdm": False,
    }
    assert right["properties"]["rank"] == 1
    assert left["ready"] == ("line", True, True)
    assert left["batches"] == 3
    assert left["info"] == {"scheduler_step": "epoch", "epoch_idx": 0, "num_steps": 3, "mine": 1}
    stats = first(est.fit(REGRESSION, batch_size=8))
    assert stats["properties"]["rank"] == 0, "what is no number is taken from one worker"
    assert stats["info"]["epoch_idx"] == 1


class Batches(TrainingOperator):
    """Keeps what each batch is told."""

    def setup(self, config):
        self.told = []

    def train_batch(self, batch, batch_info):
        self.told.append((batch_info["batch_idx"], batch_info["global_step"], batch_info["mine"]))
        features, target = batch
        assert isinstance(features, torch.Tensor)
        assert features.dtype == target.dtype == torch.float32
        figures = super().train_batch(batch, batch_info)
        assert set(figures) == {"train_loss", "num_samples"}
        return figures | {"told": tuple(self.told), "square": torch.tensor(float(batch_info["batch_idx"] ** 2))}


def test_batch_info_and_global_step(engine):
    est = regression(RAY, training_operator_cls=Batches)
    stats = first(est.fit(REGRESSION, batch_size=8, info={"mine": "a"}))
    assert stats["told"] == ((0, 0, "a"), (1, 1, "a"), (2, 2, "a"))
    assert stats["square"] == pytest.approx(5 / 3)
    assert stats["last_square"] == 4.0
    again = first(est.fit(REGRESSION, batch_size=8, info={"mine": "b"}))
    assert again["told"] == ((0, 3, "b"), (1, 4, "b"), (2, 5, "b")), "global_step goes on over fits"


class OwnStep(TrainingOperator):
    """train_batch as a user writes it from scratch."""

    def train_batch(self, batch, batch_info):
        features, target = batch
        with self.timers.record("mine"):
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(features), target)
            loss.backward()
            self.optimizer.step()
        return {"train_loss": loss.item(), "num_samples": len(target)}


def test_a_step_of_ones_own_is_taken_by_all_workers_together(engine):
    est = regression(RAY, training_operator_cls=OwnStep, num_workers=2)
    stats = first(est.fit(REGRESSION, batch_size=ROWS, profile=True))
    np.testing.assert_allclose(weights(est.get_model()), weights(by_hand(1)), atol=1e-6)
    assert stats["num_samples"] == ROWS
    assert stats["profile"]["mean_mine_s"] > 0


class OwnEpoch(TrainingOperator):
    """The whole epoch as a user writes it, without train_batch."""

    def train_epoch(self, iterator, info):
        losses = []
        for features, target in iterator:
            loss = self.criterion(self.model(features), target)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return {"train_loss": sum(losses) / len(losses), "note": "mine", "nested": {"a": 1}}


def test_an_epoch_of_ones_own(engine):
    est = regression(RAY, training_operator_cls=OwnEpoch, num_workers=2)
    stats = first(est.fit(REGRESSION, batch_size=ROWS))
    np.testing.assert_allclose(weights(est.get_model()), weights(by_hand(1)), atol=1e-6)
    assert (stats["epoch"], stats["batch_count"], stats["num_samples"]) == (1, 1, ROWS)
    assert (stats["note"], stats["nested"]) == ("mine", {"a": 1})


class Half(TrainingOperator):
    """Another output and loss than the model's."""

    def forward_batch(self, batch, batch_info):
        features, target = batch
        output = self.model(features) / 2
        return output, target, (output - target).abs().mean()


def test_forward_batch_is_used_in_training_and_in_measuring(engine):
    est = Estimator.from_torch(
        model=linear(), optimizer=None, training_operator_cls=Half, metrics=MSE(), backend=RAY, num_workers=2
    )
    with torch.no_grad():
        output = linear()(torch.from_numpy(X)).numpy() / 2
    figures = est.evaluate(REGRESSION)
    assert figures["MSE"] == pytest.approx(((output - Y) ** 2).mean(), rel=1e-5)
    assert first(est.fit(REGRESSION))["train_loss"] == pytest.approx(np.abs(output - Y).mean(), rel=1e-5)


class Counting(TrainingOperator):
    """validate_batch, the hook of the older release."""

    def validate_batch(self, batch, batch_info):
        _, target = batch
        assert not self.model.training
        assert not torch.is_grad_enabled()
        assert batch_info["mine"] == 2
        return {"positive": float((target > 0).float().mean()), "num_samples": len(target)}


def test_validate_batch(engine):
    figures = regression(RAY, training_operator_cls=Counting, num_workers=2).evaluate(
        REGRESSION, batch_size=10, info={"mine": 2}
    )
    assert figures == {"positive": pytest.approx((Y > 0).mean()), "num_samples": ROWS}


class OwnValidate(TrainingOperator):
    """The whole validation as a user writes it."""

    def validate(self, val_iterator, info, metrics):
        self.model.eval()
        rows, largest = 0, 0.0
        with torch.no_grad():
            for features, target in val_iterator:
                output = self.model(features)
                for metric in metrics.values():
                    metric(output, target)
                rows += len(target)
                largest = max(largest, float(target.max()))
        return {"largest": largest, "num_samples": rows, "mode": info["mode"]}


def test_validate_with_metrics_over_all_workers(engine):
    est = regression(RAY, training_operator_cls=OwnValidate, metrics=[MSE()], num_workers=2)
    figures = est.evaluate(REGRESSION, info={"mode": "test"})
    assert set(figures) == {"largest", "num_samples", "mode", "MSE"}
    assert figures["mode"] == "test"
    plain = regression(RAY, metrics=[MSE()]).evaluate(REGRESSION)
    assert figures["MSE"] == pytest.approx(plain["MSE"])
    stats = first(est.fit(REGRESSION, validation_data=REGRESSION, info={"mode": "fit"}))
    assert stats["val_mode"] == "fit"


def test_training_goes_on_after_validation(engine):
    """The model is put back into training: its dropout still drops."""

    class Modes(TrainingOperator):
        def train_batch(self, batch, batch_info):
            return super().train_batch(batch, batch_info) | {"training": float(self.model.training)}

    from zoo.orca.learn.trigger import SeveralIteration

    est = classifier(RAY, training_operator_cls=Modes, metrics=Accuracy())
    stats = first(est.fit(CLASSES, batch_size=8, validation_data=CLASSES, checkpoint_trigger=SeveralIteration(2)))
    assert stats["training"] == 1.0
    assert "val_Accuracy" in stats


class Doubling(TrainingOperator):
    """Prediction of its own: by the epoch and by the batch."""

    def predict_batch(self, batch):
        assert not torch.is_grad_enabled()
        return 2 * super().predict_batch(batch)


class Shifting(TrainingOperator):
    def predict(self, pred_iterator):
        return [output + 1 for output in super().predict(pred_iterator)]


def test_predict_hooks(engine):
    plain = regression().predict(X)
    np.testing.assert_allclose(regression(training_operator_cls=Doubling).predict(X), 2 * plain, rtol=1e-6)
    np.testing.assert_allclose(regression(training_operator_cls=Shifting).predict(X), plain + 1, rtol=1e-6)


class Remembering(TrainingOperator):
    """Has a state of its own, which must survive between fits and files."""

    def setup(self, config):
        self.seen = 0
        self.mean = torch.zeros(3)

    def train_batch(self, batch, batch_info):
        self.seen += 1
        self.mean = self.mean + batch[0].mean(dim=0)
        return super().train_batch(batch, batch_info) | {"seen": self.seen}

    def state_dict(self):
        return {"seen": self.seen, "mean": self.mean}

    def load_state_dict(self, state_dict):
        self.seen = state_dict["seen"]
        self.mean = state_dict["mean"]


@pytest.mark.parametrize("backend", ["bigdl", RAY])
def test_state_of_ones_own_through_files(engine, tmp_path, backend):
    est = regression(backend, training_operator_cls=Remembering)
    est.fit(REGRESSION, epochs=1, batch_size=8)
    est.save(str(tmp_path / "state.pt"))
    again = regression(backend, training_operator_cls=Remembering).load(str(tmp_path / "state.pt"))
    again.fit(REGRESSION, epochs=2, batch_size=8)
    again.save(str(tmp_path / "more.pt"))
    name = "more_optim.pt" if backend == "bigdl" else "more.pt"
    operator = torch.load(tmp_path / name, weights_only=True)["operator"]
    epochs = 2 if backend == "bigdl" else 3
    assert operator["own"]["seen"] == operator["global_step"] == 3 * epochs
    assert operator["own"]["mean"].shape == (3,)


def test_weights_alone_bring_no_state_of_ones_own(engine, tmp_path):
    torch.save(by_hand(2).state_dict(), tmp_path / "plain.pt")
    est = regression(RAY, training_operator_cls=Remembering).load(tmp_path / "plain.pt")
    assert first(est.fit(REGRESSION, batch_size=8))["last_seen"] == 3


def make_pair(config):
    torch.manual_seed(1)
    return [nn.Linear(2, 3), nn.Linear(3, 1)]


def make_pair_of_optimizers(models, config):
    generator, judge = models
    return [torch.optim.SGD(generator.parameters(), lr=0.1), torch.optim.Adam(judge.parameters(), lr=0.01)]


def make_pair_of_schedulers(optimizers, config):
    return [torch.optim.lr_scheduler.StepLR(each, 1, gamma=0.5) for each in optimizers]


class Gan(TrainingOperator):
    """Two models that are trained against each other, a step of each for every batch."""

    def train_batch(self, batch, batch_info):
        real = batch[0]
        generator, judge = self.models
        make, tell = self.optimizers
        noise = torch.linspace(-1, 1, len(real) * 2).reshape(len(real), 2)
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)

        tell.zero_grad()
        fake = generator(noise)
        loss = self.criterion(judge(real), ones) + self.criterion(judge(fake.detach()), zeros)
        loss.backward()
        tell.step()

        make.zero_grad()
        fooled = self.criterion(judge(fake), ones)
        fooled.backward()
        make.step()
        rates = {"make_lr": make.param_groups[0]["lr"], "tell_lr": tell.param_groups[0]["lr"]}
        return {"judge_loss": loss, "make_loss": fooled.item(), "num_samples": len(real)} | rates


@pytest.mark.parametrize("backend", ["bigdl", RAY])
def test_a_small_gan(engine, tmp_path, backend):
    def gan():
        return Estimator.from_torch(
            model=make_pair,
            optimizer=make_pair_of_optimizers,
            loss=nn.BCEWithLogitsLoss(),
            scheduler_creator=make_pair_of_schedulers,
            scheduler_step_freq="epoch",
            training_operator_cls=Gan,
            backend=backend,
            num_workers=2,
        )

    est = gan()
    before = [weights(each) for each in est.get_model()]
    stats = est.fit({"x": X}, epochs=2, batch_size=8)
    after = [weights(each) for each in est.get_model()]
    assert not any(np.allclose(one, other) for one, other in zip(before, after, strict=True))
    if backend == RAY:
        assert {"judge_loss", "last_judge_loss", "make_loss", "last_make_loss"} <= set(stats[0])
        assert isinstance(stats[0]["judge_loss"], float)
        assert (stats[1]["make_lr"], stats[1]["tell_lr"]) == pytest.approx((0.05, 0.005)), "all schedulers step"
    est.save(str(tmp_path / "gan.pt"))
    loaded = gan().load(str(tmp_path / "gan.pt"))
    for one, other in zip(after, loaded.get_model(), strict=True):
        assert np.array_equal(one, weights(other))
    est.fit({"x": X}, epochs=3, batch_size=8)
    loaded.fit({"x": X}, epochs=3, batch_size=8)
    for one, other in zip(est.get_model(), loaded.get_model(), strict=True):
        assert np.array_equal(weights(one), weights(other))


def test_several_models_as_instances(engine):
    pair = make_pair({})
    est = Estimator.from_torch(
        model=pair,
        optimizer=make_pair_of_optimizers(pair, {}),
        loss=nn.BCEWithLogitsLoss(),
        training_operator_cls=Gan,
        backend=RAY,
    )
    est.fit({"x": X}, batch_size=8)
    assert not np.allclose(weights(est.get_model()[0]), weights(pair[0]))


def test_several_models_need_an_operator(engine):
    est = Estimator.from_torch(
        model=make_pair, optimizer=make_pair_of_optimizers, loss=nn.BCEWithLogitsLoss(), backend=RAY
    )
    with pytest.raises(InvalidArgumentError, match=r"2 models and 2 optimizers.*training_operator_cls") as caught:
        est.fit({"x": X, "y": Y})
    assert isinstance(caught.value, ValueError)


class Three(TrainingOperator):
    """A loss of three arguments."""

    def train_batch(self, batch, batch_info):
        self.optimizer.zero_grad()
        anchor, near, far = (self.model(each) for each in batch[:3])
        loss = self.criterion(anchor, near, far)
        loss.backward()
        self.optimizer.step()
        return {"train_loss": loss, "num_samples": len(anchor)}


def test_a_loss_of_three_arguments(engine):
    est = regression(RAY, loss=nn.TripletMarginLoss(), training_operator_cls=Three, num_workers=2)
    losses = est.fit({"x": [X, X + 0.1, X[::-1].copy()]}, epochs=5, batch_size=12)
    assert losses[-1]["train_loss"] < losses[0]["train_loss"]


def test_plateau_by_hand(engine):
    """ReduceLROnPlateau is stepped by the operator, which knows the figure."""

    class Plateau(TrainingOperator):
        def train_epoch(self, iterator, info):
            figures = super().train_epoch(iterator, info)
            self.scheduler.step(1.0)
            return figures | {"lr": self.optimizer.param_groups[0]["lr"]}

    est = regression(
        RAY,
        training_operator_cls=Plateau,
        scheduler_creator=lambda optimizer, config: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0),
        scheduler_step_freq="manual",
    )
    rates = [stats["lr"] for stats in (*est.fit(REGRESSION, epochs=2), *est.fit(REGRESSION, epochs=1))]
    assert rates == pytest.approx([0.1, 0.01, 0.001])
