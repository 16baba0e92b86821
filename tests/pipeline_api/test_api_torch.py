"""TorchModel, TorchLoss, TorchOptim and zoo_pickle_module: torch's own objects as layers and methods."""

from __future__ import annotations

import copy
import subprocess
import sys
import warnings

import cloudpickle
import numpy as np
import pytest
import torch

from bigdl.nn.layer import Linear, Model, Sequential
from zoo.orca.errors import InvalidArgumentError
from zoo.pipeline.api.torch import TorchLoss, TorchModel, TorchOptim, zoo_pickle_module
from zoo.pipeline.api.torch.utils import trainable_param


class Normed(torch.nn.Module):
    """Frozen weights, trained ones, and buffers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(2, 3).requires_grad_(False)
        self.norm = torch.nn.BatchNorm1d(3)
        self.last = torch.nn.Linear(3, 1)

    def forward(self, x):
        return self.last(self.norm(self.first(x)))


class TwoInputs(torch.nn.Module):
    def forward(self, first, second):
        return first + second, first - second


X = np.arange(8.0).reshape(4, 2)


def test_a_torch_model_is_the_module_that_was_given():
    module = Normed()
    layer = TorchModel.from_pytorch(module)
    assert layer.to_pytorch() is module
    np.testing.assert_allclose(layer.evaluate().forward(X), module(torch.from_numpy(X).float()).detach(), rtol=1e-6)
    before = module.norm.running_mean.clone()
    layer.training().forward(X)
    assert not torch.equal(module.norm.running_mean, before)
    assert isinstance(TorchModel.from_pytorch(Normed).to_pytorch(), Normed)
    first, second = TorchModel.from_pytorch(TwoInputs()).forward([X, X])
    assert (first == 2 * X).all()
    assert (second == 0).all()
    assert Sequential().add(Linear(2, 2)).add(TorchModel.from_pytorch(torch.nn.Linear(2, 5))).forward(X).shape == (4, 5)


def test_weights_are_one_flat_array_of_what_is_trained():
    layer = TorchModel.from_pytorch(Normed())
    (flat,) = layer.get_weights()
    assert (flat.shape, flat.dtype) == ((3 + 3 + 3 + 1,), np.float32)
    frozen = layer.to_pytorch().first.weight.clone()
    layer.set_weights([np.arange(10.0)])
    assert (layer.get_weights()[0] == np.arange(10)).all()
    assert torch.equal(layer.to_pytorch().first.weight, frozen)
    assert [each.numel() for each in trainable_param(layer.to_pytorch())] == [3, 3, 3, 1]
    for wrong in ([np.zeros(4)], [np.zeros(10), np.zeros(10)]):
        with pytest.raises(InvalidArgumentError, match="one array of 10 values"):
            layer.set_weights(wrong)


def test_a_saved_model_comes_back_by_its_value(tmp_path):
    layer = TorchModel.from_pytorch(Normed()).training()
    layer.forward(X)
    path = str(tmp_path / "model")
    layer.save(path, True)
    loaded = TorchModel.from_value(Model.load(path).value)
    assert isinstance(loaded.to_pytorch(), Normed)
    assert torch.equal(loaded.to_pytorch().norm.running_mean, layer.to_pytorch().norm.running_mean)
    np.testing.assert_array_equal(loaded.evaluate().forward(X), layer.evaluate().forward(X))
    assert not loaded.to_pytorch().first.weight.requires_grad


def test_a_loss_is_a_module_or_a_function():
    output, label = np.array([[1.0], [3.0]]), np.array([[1.0], [1.0]])
    assert TorchLoss.from_pytorch(torch.nn.MSELoss()).forward(output, label) == 2.0
    own = TorchLoss.from_pytorch(lambda output, label: (output[0] - label[0]).abs().mean() + output[1].mean())
    assert own.forward([output, output], [label, label]) == 3.0
    with pytest.raises(InvalidArgumentError, match="TorchLoss takes a loss"):
        TorchLoss.from_pytorch("mse")


def optimizers(parameters):
    return [
        torch.optim.Adam(parameters, lr=0.1),
        torch.optim.SGD([{"params": parameters[:1], "lr": 0.1}, {"params": parameters[1:], "lr": 0.2}]),
        torch.optim.LBFGS(parameters, lr=0.5),
    ]


@pytest.mark.parametrize("number", range(3))
def test_an_optimizer_is_copied_for_the_module_and_for_clones_of_it(number):
    """A step of the copy for a module is a step of the optimizer made for it, and the given one stays as it is."""
    module, other, by_hand = (torch.nn.Linear(2, 1) for _ in range(3))
    for each in (other, by_hand):
        each.load_state_dict(module.state_dict())
    optim = TorchOptim.from_pytorch(optimizers(list(module.parameters()))[number])
    together, copied = copy.deepcopy((module, optim))
    travelled = cloudpickle.loads(cloudpickle.dumps(optim))
    for net, method in ((other, optim), (together, copied), (module, travelled)):
        step(net, method.torch_parts(net)["optimizer"])
    step(by_hand, optimizers(list(by_hand.parameters()))[number])
    for net in (other, together, module):
        assert torch.equal(net.weight, by_hand.weight)
    assert not optim.optimizer.state_dict()["state"]


def step(net, optimizer):
    def closure():
        optimizer.zero_grad()
        loss = net(torch.from_numpy(X).float()).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)


def test_a_rate_and_a_scheduler_travel_with_the_optimizer():
    module = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5 ** (epoch + 1))
    optim = TorchOptim.from_pytorch(scheduler, "IterationDecay")
    parts = optim.torch_parts(module)
    assert parts["scheduler_step_freq"] == "batch"
    assert parts["scheduler_creator"].optimizer is parts["optimizer"]
    assert parts["optimizer"].param_groups[0]["lr"] == pytest.approx(0.05)
    optim.learningrate = 0.8
    parts = optim.torch_parts(module)
    step(module, parts["optimizer"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parts["scheduler_creator"].step()
    assert parts["optimizer"].param_groups[0]["lr"] == pytest.approx(0.2)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)


def test_what_no_optimizer_can_do_is_answered():
    module = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    with pytest.raises(InvalidArgumentError, match="decayType must be one of"):
        TorchOptim.from_pytorch(optimizer, "Epoch")
    with pytest.raises(InvalidArgumentError, match="takes a torch optimizer"):
        TorchOptim.from_pytorch(module)
    with pytest.raises(InvalidArgumentError, match=r'goes with decayType="EpochDecayByScore"'):
        TorchOptim.from_pytorch(torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer))
    with pytest.raises(InvalidArgumentError, match="made for other parameters"):
        TorchOptim.from_pytorch(optimizer).torch_parts(torch.nn.Linear(3, 1))


def test_a_module_of_a_script_is_read_where_the_script_is_not(tmp_path):
    path = tmp_path / "model.pt"
    script = f"""
import torch
from zoo.pipeline.api.torch import zoo_pickle_module
class Twice(torch.nn.Module):
    def forward(self, x):
        return 2 * x
torch.save(Twice(), {str(path)!r}, pickle_module=zoo_pickle_module)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
    loaded = torch.load(path, pickle_module=zoo_pickle_module, weights_only=False)
    assert loaded(torch.ones(2)).tolist() == [2.0, 2.0]
