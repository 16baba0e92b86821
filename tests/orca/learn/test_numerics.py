"""Precision, accumulation, clipping, compilation, determinism, devices and NaN: each against plain torch."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from nets import CLASSES, LABELS, REGRESSION, ROWS, X, Y, classifier, make_scheduler, weights
from torch import nn

from zoo.orca.data import XShards
from zoo.orca.engine.gang import run_gang
from zoo.orca.errors import InvalidArgumentError, MissingPackageError, NotFiniteLossError
from zoo.orca.learn import optimizers
from zoo.orca.learn.metrics import MSE
from zoo.orca.learn.optimizers.schedule import Exponential
from zoo.orca.learn.pytorch import Estimator, TrainingOperator
from zoo.orca.learn.pytorch.devices import DeviceSync, find_device
from zoo.orca.learn.pytorch.numerics import LossScale, Numerics, compile_model
from zoo.orca.learn.pytorch.tensors import to_device
from zoo.orca.learn.sync.solo import SoloGroup

local = pytest.mark.engines("local")
BACKENDS = ("bigdl", "torch_distributed")
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
BATCH = 8
ROOT = Path(__file__).parents[3]


def make_net(config=None):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))


def make_momentum(model, config=None):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def small_loss(output, target):
    """So small that fp16 bears its gradients times the first scale."""
    return nn.functional.mse_loss(output, target) / 100


def estimator(backend="bigdl", **options):
    """Instances; rows in their order, so that batches are slices."""
    net = make_net()
    given = {"model": net, "optimizer": make_momentum(net), "loss": nn.MSELoss(), "config": {"shuffle": False}}
    return Estimator.from_torch(**(given | {"backend": backend} | options))


def by_hand(precision="fp32", epochs=2, batch=BATCH, x=X, loss=nn.functional.mse_loss, clip=None, skipped=()):
    """The same in plain torch: autocast around forward and loss, a GradScaler for fp16; batches may be left out."""
    net = make_net()
    optimizer = make_momentum(net)
    scaler = torch.amp.GradScaler("cpu", enabled=precision == "fp16")
    for _ in range(epochs):
        for start in range(0, ROWS, batch):
            features, target = torch.from_numpy(x[start : start + batch]), torch.from_numpy(Y[start : start + batch])
            if start in skipped:
                continue
            optimizer.zero_grad()
            with torch.autocast("cpu", TYPES.get(precision), enabled=precision != "fp32"):
                found = loss(net(features), target)
            scaler.scale(found).backward()
            if clip is not None:
                clip(net.parameters())
            scaler.step(optimizer)
            scaler.update()
    return net


def same_bits(model, expected):
    return np.array_equal(weights(model), weights(expected))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"precision": "half"}, "precision must be one of 'fp32', 'bf16', 'fp16'"),
        ({"accumulate": 0}, "accumulate must be a whole number of at least 1"),
        ({"accumulate": True}, "accumulate must be a whole number of at least 1"),
        ({"compile": "yes"}, "compile must be True or False"),
        ({"deterministic": 1}, "deterministic must be True or False"),
        ({"stop_on_nan": None}, "stop_on_nan must be True or False"),
        ({"clip_norm": 0}, "clip_norm must be a number above 0"),
        ({"clip_value": float("nan")}, "clip_value must be a number above 0"),
        ({"clip_value": 1, "clip_norm": 1}, "Give one of them"),
        ({"device": "gpu"}, 'device must be "cpu", "cuda", "cuda:<number>" or None'),
        ({"device": 0}, 'device must be "cpu", "cuda", "cuda:<number>" or None'),
    ],
    ids=str,
)
def test_keywords_are_checked_at_once(options, words):
    with pytest.raises(ValueError, match=words):
        estimator(**options)


class TestPrecision:
    @local
    @pytest.mark.parametrize("precision", ["bf16", "fp16"])
    def test_one_worker_is_the_hand_written_loop_to_the_bit(self, engine, precision):
        est = estimator(precision=precision, metrics=MSE())
        est.fit(REGRESSION, epochs=2, batch_size=BATCH)
        expected = by_hand(precision)
        assert same_bits(est.get_model(), expected)
        assert not same_bits(est.get_model(), by_hand("fp32"))
        with torch.no_grad(), torch.autocast("cpu", TYPES[precision]):
            output = expected(torch.from_numpy(X))
        assert output.dtype is TYPES[precision]
        found = est.predict(X, batch_size=ROWS)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, output.float().numpy())
        mse = nn.functional.mse_loss(output.double(), torch.from_numpy(Y).double())
        assert est.evaluate(REGRESSION, batch_size=ROWS)["MSE"] == pytest.approx(float(mse), rel=1e-9)
        assert {each.dtype for each in est.get_model().state_dict().values()} == {torch.float32}

    @local
    @pytest.mark.parametrize("backend", BACKENDS)
    def test_workers_agree_on_a_step_that_fp16_cannot_make(self, engine, backend, tmp_path):
        """Only rank 1 sees the row that is too large for fp16; both skip the step, and halve the scale."""
        x = X.copy()
        x[BATCH + 6] = 1e30
        options = {"precision": "fp16", "num_workers": 2, "loss": small_loss, "scheduler_creator": make_scheduler}
        est = estimator(backend, config={"shuffle": False, "gamma": 0.9}, **options)
        est.fit({"x": x, "y": Y}, epochs=1, batch_size=BATCH)
        other = estimator(backend, config={"shuffle": False, "gamma": 0.9}, **options)
        kept = [*range(BATCH), *range(2 * BATCH, ROWS)]
        other.fit({"x": X[kept], "y": Y[kept]}, epochs=1, batch_size=BATCH)
        assert same_bits(est.get_model(), other.get_model()), "as if the batch had not been there, for schedulers too"
        for each, scale, good in ((est, 2.0**15, 1), (other, 2.0**16, 2)):
            each.save(str(tmp_path / "state.pt"))
            name = "state_optim.pt" if backend == "bigdl" else "state.pt"
            state = torch.load(tmp_path / name, weights_only=True)
            assert state["operator"]["scale"] == {"value": scale, "good_steps": good}
        resumed = estimator(backend, **options).load(str(tmp_path / "state.pt"))
        resumed.fit({"x": x, "y": Y}, epochs=2 if backend == "bigdl" else 1, batch_size=BATCH)
        resumed.save(str(tmp_path / "more.pt"))
        name = "more_optim.pt" if backend == "bigdl" else "more.pt"
        assert torch.load(tmp_path / name, weights_only=True)["operator"]["scale"] == {
            "value": 2.0**15,
            "good_steps": 1,
        }

    def test_the_scale_grows_after_many_good_steps_and_has_an_end(self):
        scale = LossScale()
        for _ in range(LossScale.growth_interval):
            scale.keep()
        assert (scale.value, scale.good_steps) == (2.0**17, 0)
        for _ in range(100):
            scale.shrink()
        assert scale.value == LossScale.least

    @local
    def test_an_operator_of_ones_own_gets_it_too(self, engine):
        est = estimator("torch_distributed", precision="fp16", training_operator_cls=Own, loss=small_loss)
        (stats,) = est.fit(REGRESSION, epochs=1, batch_size=BATCH)
        assert stats["seen"] == {"use_fp16": True, "output": "torch.float16", "loss": "torch.float32", "device": "cpu"}
        assert stats["copy"] == 0.0, "a copy of the model has weights of its own"
        assert 0 < stats["largest"] < 1, "gradients have their true size after backward"
        assert stats["twice"] == 2.0, "and add up"
        plain = estimator("torch_distributed", precision="fp16", training_operator_cls=Plain)
        plain.fit(REGRESSION, epochs=1, batch_size=BATCH)
        np.testing.assert_allclose(weights(plain.get_model()), weights(by_hand("fp32", epochs=1)), atol=0.02)

    @local
    def test_what_does_not_go_together(self, engine):
        for options in ({"precision": "fp16"}, {"accumulate": 2}):
            net = make_net()
            est = estimator(model=net, optimizer=torch.optim.LBFGS(net.parameters()), **options)
            with pytest.raises(InvalidArgumentError, match="LBFGS evaluates the loss several times"):
                est.fit(REGRESSION, batch_size=BATCH)


class Own(TrainingOperator):
    """Tells what it is given, and makes copies of the model as moving averages are made."""

    def train_batch(self, batch, batch_info):
        features, target = batch
        twin = copy.deepcopy(self.model)
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.zero_()
        self.optimizer.zero_grad()
        output = self.model(features)
        loss = self.criterion(output, target)
        self.backward(loss, retain_graph=True)
        once = self.model[0].bias.grad.clone()
        self.backward(loss)
        seen = {"use_fp16": self.use_fp16, "output": str(output.dtype), "loss": str(loss.dtype)}
        return {
            "seen": seen | {"device": str(self.device)},
            "copy": float(twin(features).detach().abs().max()),
            "largest": float(once.abs().max()),
            "twice": float((self.model[0].bias.grad / once).mean()),
        }


class Plain(TrainingOperator):
    """A step as it is written without any of this."""

    def train_batch(self, batch, batch_info):
        features, target = batch
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(features), target)
        loss.backward()
        self.optimizer.step()
        return {"train_loss": loss.item()}


class TestAccumulate:
    @local
    @pytest.mark.parametrize("backend", BACKENDS)
    @pytest.mark.parametrize("workers", [1, 3])
    def test_two_batches_are_one_of_twice_the_rows(self, engine, backend, workers):
        """24 rows in batches of 5 make steps of 10, 10 and 4; the scheduler steps with the optimizer."""
        options = {"num_workers": workers, "scheduler_creator": make_scheduler, "config": {"shuffle": False}}
        held = estimator(backend, accumulate=2, **options)
        whole = estimator(backend, **options)
        held.fit(REGRESSION, epochs=2, batch_size=5)
        whole.fit(REGRESSION, epochs=2, batch_size=10)
        np.testing.assert_allclose(weights(held.get_model()), weights(whole.get_model()), atol=1e-6)

    @local
    @pytest.mark.parametrize("loss", ["weights", "sum", "rows"])
    def test_batches_count_by_what_their_loss_divides_by(self, engine, loss):
        criterion = {
            "weights": nn.CrossEntropyLoss(weight=torch.tensor([0.1, 3.0])),
            "sum": nn.CrossEntropyLoss(reduction="sum"),
            "rows": nn.CrossEntropyLoss(),
        }[loss]
        data = CLASSES | {"y": np.where(np.arange(ROWS) < 5, 0, LABELS)}
        found = []
        for accumulate, batch_size in ((3, 4), (1, 12)):
            # A schedule of orca's steps with the optimizer as well.
            schedule = optimizers.SGD(0.1, learningrate_schedule=Exponential(1, 0.5))
            est = classifier(
                optimizer=schedule, loss=criterion, accumulate=accumulate, num_workers=2, config={"shuffle": False}
            )
            found.append(weights(est.fit(data, epochs=2, batch_size=batch_size).get_model()))
        np.testing.assert_allclose(*found, atol=1e-6)

    @local
    def test_batches_that_wait_do_not_make_ranks_wait(self, engine):
        est = estimator("torch_distributed", accumulate=4, num_workers=2, training_operator_cls=Counting)
        (stats,) = est.fit(REGRESSION, batch_size=4)
        assert stats["sums"] == [0, 0, 0, 1, 1, 2], "6 batches: a step of four, and one of the two that are left"


class Counting(TrainingOperator):
    """Counts how often ranks combine something."""

    def setup(self, config):
        self.sums = []

    def train_batch(self, batch, batch_info):
        if not self.sums:
            group, self.count = self._replica.group, 0
            before = group.all_reduce

            def counted(flat):
                self.count += 1
                before(flat)

            group.all_reduce = counted
        figures = super().train_batch(batch, batch_info)
        self.sums.append(self.count)
        return figures | {"sums": self.sums}


@local
@pytest.mark.parametrize("backend", BACKENDS)
def test_clipping(engine, backend):
    norm = by_hand(clip=lambda parameters: nn.utils.clip_grad_norm_(parameters, 0.05))
    value = by_hand(clip=lambda parameters: nn.utils.clip_grad_value_(parameters, 0.02))
    unclipped = by_hand()

    def trained(set_later=None, **options):
        est = estimator(backend, num_workers=2, **options)
        if set_later is not None:
            set_later(est)
        est.fit(REGRESSION, epochs=2, batch_size=BATCH)
        return weights(est.get_model())

    np.testing.assert_allclose(trained(clip_norm=0.05), weights(norm), atol=1e-6)
    np.testing.assert_allclose(trained(clip_value=0.02), weights(value), atol=1e-6)
    by_setter = trained(lambda est: est.set_l2_norm_gradient_clipping(0.05), clip_value=0.5)
    np.testing.assert_allclose(by_setter, weights(norm), atol=1e-6)
    cleared = trained(lambda est: est.clear_gradient_clipping(), clip_norm=0.01)
    np.testing.assert_allclose(cleared, weights(unclipped), atol=1e-6)


class TestNan:
    @local
    @pytest.mark.parametrize("backend", BACKENDS)
    def test_stops_before_the_weights_change(self, engine, backend):
        x = X.copy()
        x[BATCH + 1, 0] = np.nan
        est = estimator(backend, stop_on_nan=True, num_workers=2, training_operator_cls=Unchanged)
        with pytest.raises(ArithmeticError, match=r"step 2 \(batch 2 of epoch 1\) is nan") as caught:
            est.fit({"x": x, "y": Y}, batch_size=BATCH)
        assert isinstance(caught.value, NotFiniteLossError)
        assert (caught.value.iteration, caught.value.epoch, caught.value.batch) == (2, 1, 2)
        assert "try a smaller learning rate" in str(caught.value)
        assert any("unchanged" in note for note in caught.value.__notes__)
        assert same_bits(est.get_model(), make_net())

    @local
    def test_counts_over_fits_and_may_be_left_alone(self, engine):
        est = estimator(stop_on_nan=True)
        est.fit(REGRESSION, epochs=1, batch_size=BATCH)
        y = Y.copy()
        y[-1] = np.inf
        with pytest.raises(ArithmeticError, match=r"step 6 \(batch 3 of epoch 2\) is inf"):
            est.fit({"x": X, "y": y}, epochs=2, batch_size=BATCH)
        assert np.isfinite(weights(est.get_model())).all()
        careless = estimator().fit({"x": X, "y": y}, batch_size=BATCH)
        assert not np.isfinite(weights(careless.get_model())).any()


class Unchanged(TrainingOperator):
    """Says of a step that failed whether it left the weights alone."""

    def train_batch(self, batch, batch_info):
        before = weights(self.model).copy()
        try:
            return super().train_batch(batch, batch_info)
        except ArithmeticError as error:
            if np.array_equal(before, weights(self.model)):
                error.add_note("the weights are unchanged")
            raise


class Alone:
    """A worker of its own, for a learner in this process."""

    rank, world_size, local_rank, local_size = 0, 1, 0, 1


def learner(**options):
    return estimator(**options)._learning().build(Alone(), SoloGroup(), None)


def flags():
    cudnn = torch.backends.cudnn
    workspace = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    return torch.are_deterministic_algorithms_enabled(), cudnn.deterministic, cudnn.benchmark, workspace


def fail(config):
    raise LookupError("no such model")


def test_deterministic_is_put_back():
    """Processes are used again, for other estimators."""
    before = flags()
    with closing(learner(deterministic=True)):
        assert flags() == (True, True, False, ":4096:8")
    assert flags() == before == (False, False, False, None)
    with pytest.raises(LookupError, match="no such model"):
        learner(model=fail, optimizer=make_momentum, deterministic=True)
    assert flags() == before


def compile_without_a_compiler():
    """Let the next torch.compile leave the code as torch traced it, for C++ takes half a minute."""
    real = torch.compile

    def cheap(function, options):
        torch.compile = real
        assert options == {"compile_threads": 1}
        return real(function, backend="eager")

    torch.compile = cheap


class Traced(TrainingOperator):
    """Counts what torch compiled."""

    def train_epoch(self, iterator, info):
        before = graphs()
        figures = super().train_epoch(iterator, info)
        return figures | {"graphs": graphs() - before}


def graphs():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


SCRIPT = """
    import sys
    sys.path[:0] = {paths!r}
    import torch
    from nets import REGRESSION
    from test_numerics import Traced, compile_without_a_compiler
    from zoo.orca.learn.pytorch import Estimator

    SLOPE = 0.5

    def bent(x):
        return torch.where(x > 0, x, SLOPE * x)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def forward(self, x):
            return bent(self.layer(x))

    if __name__ == "__main__":
        net = Net()
        est = Estimator.from_torch(
            model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), loss=torch.nn.MSELoss(), compile=True,
            backend="torch_distributed", initialization_hook=compile_without_a_compiler, training_operator_cls=Traced,
        )
        print(len(est.fit(REGRESSION, epochs=2, batch_size=8)))
"""


class TestCompile:
    @local
    def test_a_compiled_model_is_the_same_model(self, engine):
        options = {"initialization_hook": compile_without_a_compiler, "training_operator_cls": Traced}
        est = estimator("torch_distributed", compile=True, precision="bf16", **options)
        stats = est.fit(REGRESSION, epochs=2, batch_size=BATCH)
        assert stats[0]["graphs"] == 1
        assert same_bits(est.get_model(), by_hand("bf16"))
        assert list(est.get_model().state_dict()) == list(make_net().state_dict())

    def test_a_model_of_the_script_itself(self, tmp_path):
        script = tmp_path / "train.py"
        script.write_text(textwrap.dedent(SCRIPT).format(paths=[str(Path(__file__).parent), str(ROOT)]))
        ended = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stdout) == (0, "2\n"), ended.stderr

    def test_it_is_compiled_in_full_precision_too(self):
        before = graphs()
        with closing(learner(compile=True, initialization_hook=compile_without_a_compiler)) as found:
            found.native(torch.ones(2, 3))
            assert graphs() == before + 1
        torch.compiler.reset()
        assert type(found.native).forward is nn.Sequential.forward
        assert "forward" not in vars(found.native)

    def test_a_compiler_is_asked_for(self, monkeypatch, tmp_path):
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("CXX", raising=False)
        with pytest.raises(MissingPackageError, match=r"needs a C\+\+ compiler on every worker"):
            compile_model(make_net())


class TestDevice:
    @local
    @pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
    def test_a_gpu_that_is_not_there_is_an_error_before_anything_starts(self, engine):
        for call in (lambda est: est.fit(REGRESSION), lambda est: est.predict(X)):
            with pytest.raises(InvalidArgumentError, match="finds no GPU on this machine") as caught:
                call(estimator(device="cuda"))
            assert not hasattr(caught.value, "rank"), "no worker was asked"
        est = estimator(device="cpu").fit(REGRESSION, epochs=2, batch_size=BATCH)
        assert same_bits(est.get_model(), by_hand())

    def test_each_worker_of_a_machine_takes_a_gpu(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        assert [str(find_device(None, number)) for number in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]
        assert str(find_device("cuda", 3)) == "cuda:1"
        assert str(find_device("cuda:1", 0)) == "cuda:1"
        assert str(find_device("cpu", 1)) == "cpu"
        with pytest.raises(InvalidArgumentError, match=r'there are 2 GPU\(s\) on this machine: "cuda:0" to "cuda:1"'):
            find_device("cuda:2")

    def test_what_a_batch_holds_is_moved_however_it_is_nested(self):
        packed = nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)])
        batch = [torch.ones(2), ({"a": torch.ones(1)}, "text"), packed]
        moved = to_device(batch, torch.device("meta"))
        assert (moved[0].device.type, moved[1][0]["a"].device.type, moved[1][1]) == ("meta", "meta", "text")
        assert moved[2].data.device.type == "meta"
        assert to_device(batch, torch.device("cpu")) is batch

    @local
    @pytest.mark.parametrize(("name", "sharded"), [("bigdl", True), ("torch_distributed", False)])
    def test_workers_without_gpus_agree_as_ever(self, engine, name, sharded):
        def total(worker, sync):
            with sync.join(worker) as group:
                flat = np.array([float(worker.rank + 1)])
                group.all_reduce(flat)
                return float(flat[0]), group.device

        sync = DeviceSync(name)
        assert sync.sharded is sharded
        assert run_gang(engine, total, 3, sync) == [(6.0, "cpu")] * 3


def test_nothing_is_set_by_default():
    assert Numerics() == Numerics("fp32", 1, False, None, None, False, None, False)


BITS: set[bytes] = set()


def test_together_on_every_engine(engine):
    """bf16, two batches a step and clipping, on two workers: the same bits on all engines, close to one worker."""
    options = {"precision": "bf16", "accumulate": 2, "clip_norm": 0.5, "stop_on_nan": True, "deterministic": True}
    shards = XShards.partition(REGRESSION, num_shards=2)
    found = [
        weights(estimator(num_workers=workers, **options).fit(shards, epochs=2, batch_size=4).get_model())
        for workers in (2, 1)
    ]
    np.testing.assert_allclose(*found, atol=0.02)
    assert not np.allclose(found[0], weights(make_net()), atol=0.02)
    BITS.add(found[0].tobytes())
    assert len(BITS) == 1
