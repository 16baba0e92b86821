"""Every layer gives what plain torch gives, values and gradients, and comes back from a file or a pickle the same."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from layer_cases import CASES, Case, r

from bigdl.nn import layer as layers
from bigdl.nn.weights import places, shown_shape
from bigdl.util import common

#: Not layers to be made and run by themselves.
NO_CASE = {"Container", "Input", "InputLayer", "Layer", "Node"}


def tensors(values: Any) -> Any:
    return [tensors(each) for each in values] if isinstance(values, list) else torch.tensor(values, requires_grad=True)


def flat(values: Any) -> list[Any]:
    return [leaf for each in values for leaf in flat(each)] if isinstance(values, list) else [values]


def close(actual: Any, expected: Any) -> None:
    found, wanted = flat(actual), flat(expected)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        other = other.detach().numpy() if isinstance(other, torch.Tensor) else other
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_every_exported_layer_has_a_case():
    exported = {name for name in layers.__all__ if name not in common.__all__} - NO_CASE
    assert exported == CASES.keys()
    assert len(exported) > 130


@pytest.mark.parametrize("name", CASES)
def test_layer(name, tmp_path):
    for number, case in enumerate(CASES[name]):
        check_values_and_gradients(case)
        check_copies(case, str(tmp_path / str(number)))
        if case.record:
            check_one_record(case)


def check_values_and_gradients(case: Case) -> None:
    """Values and gradients are those of torch."""
    torch.manual_seed(3)
    layer = case.make()
    assert layer.is_training() == case.train
    weights = [torch.tensor(each, requires_grad=True) for each in layer.get_weights()]
    inputs = tensors(case.x)
    torch.manual_seed(7)
    expected = case.torch(inputs, *weights)
    torch.manual_seed(7)
    output = layer.forward(case.x)
    close(output, expected)

    gradient = [r(*each.shape) for each in flat(output)]
    found = layer.backward(case.x, gradient if isinstance(output, list) else gradient[0])
    pairs = [(each, torch.tensor(g)) for each, g in zip(flat(expected), gradient, strict=True) if each.requires_grad]
    if pairs:
        torch.autograd.backward([each for each, _ in pairs], [each for _, each in pairs])
    close(found, [np.zeros(each.shape) if each.grad is None else each.grad for each in flat(inputs)])
    for (owner, name), weight in zip(places(layer.module), weights, strict=True):
        found = getattr(owner, name).grad
        close(np.zeros(weight.shape) if found is None else found.numpy().reshape(shown_shape(owner, name)), weight.grad)


def check_one_record(case: Case) -> None:
    """One record is as good as a batch."""
    layer = case.make().evaluate()
    batch = layer.forward(case.x)
    one = layer.forward([each[0] for each in case.x] if isinstance(case.x, list) else case.x[0])
    close(np.asarray(one).reshape(batch[0].shape), batch[0])


def check_copies(case: Case, path: str) -> None:
    """A layer comes back the same from a file and from a pickle."""
    layer = case.make()
    torch.manual_seed(7)
    expected = layer.forward(case.x)
    layer.save(path)
    loaded = layers.Model.load(path, allow_pickle=False)
    for twin in (loaded, pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
        assert type(twin) is type(layer)
        assert (twin.name(), repr(twin), twin.is_training()) == (layer.name(), repr(layer), layer.is_training())
        close(twin.get_weights(), layer.get_weights())
        torch.manual_seed(7)
        close(twin.forward(case.x), expected)
