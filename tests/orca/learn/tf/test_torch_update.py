"""Orca's optimizers on plain arrays: the same steps as torch makes, and all of them in the state."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from zoo.orca.errors import CheckpointError, InvalidArgumentError, NotOfferedError
from zoo.orca.learn.checkpoint import need_plain
from zoo.orca.learn.optimizers import LBFGS, SGD, Adam
from zoo.orca.learn.optimizers.schedule import Plateau, Step
from zoo.orca.learn.tf.torch_update import TorchUpdate

NAMES = ["dense/kernel", "dense_1/kernel", "dense_1/bias"]


def values():
    random = np.random.default_rng(0)
    return [random.normal(size=shape).astype(np.float32) for shape in ((3, 2), (2, 1), ())]


def gradients(step):
    random = np.random.default_rng(step + 1)
    return [random.normal(size=value.shape).astype(np.float32) for value in values()]


def taken(update, steps):
    for step in steps:
        update.step(gradients(step))
    return [value.copy() for value in update.values()]


def same(found, expected):
    return all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def test_steps_are_those_of_torch():
    params = [torch.from_numpy(each) for each in values()]
    adam = torch.optim.Adam(params, lr=0.1)
    for step in range(3):
        for param, gradient in zip(params, gradients(step), strict=True):
            param.grad = torch.from_numpy(np.asarray(gradient))
        adam.step()
    assert same(taken(TorchUpdate(Adam(0.1), NAMES, values()), range(3)), [each.numpy() for each in params])


@pytest.mark.parametrize("method", [Adam(0.1), SGD(0.1, momentum=0.9, learningrate_schedule=Step(2, 0.5))])
def test_a_state_that_was_taken_up_goes_on_to_the_bit(method):
    update = TorchUpdate(method, NAMES, values())
    middle = taken(update, range(3))
    state = update.state()
    need_plain(state)
    expected = taken(update, range(3, 6))
    again = TorchUpdate(method, NAMES, values())
    again.load(state)
    again.set_values(middle)
    assert same(taken(again, range(3, 6)), expected)
    assert again.rate == update.rate


def test_prefixes_choose_the_optimizer_and_the_longest_one_wins():
    before = values()
    update = TorchUpdate({"dense": SGD(1.0), "dense_1/": SGD(0.0)}, NAMES, before)
    after = taken(update, [0])
    np.testing.assert_allclose(after[0], before[0] - gradients(0)[0], rtol=1e-6)
    assert same(after[1:], before[1:])


def test_a_variable_without_a_gradient_stays_and_the_values_given_are_not_written_to():
    given = values()
    update = TorchUpdate(SGD(1.0), NAMES, given)
    after = update.step([None, *gradients(0)[1:]])
    assert same(given, values())
    assert np.array_equal(after[0], given[0])
    assert not np.array_equal(after[1], given[1])


def test_a_plateau_changes_the_rate_at_the_end_of_an_epoch():
    update = TorchUpdate(SGD(1.0, learningrate_schedule=Plateau("Loss", 0.5, patience=1)), NAMES, values())
    for _ in range(2):
        update.step(gradients(0))
        update.end_epoch(loss=3.0, score=None)
    assert update.rate == 0.5


def test_what_cannot_work_is_said():
    with pytest.raises(InvalidArgumentError, match="no optimizer was given for the variable 'dense_1/kernel'"):
        TorchUpdate({"dense/": SGD()}, NAMES, values())
    with pytest.raises(InvalidArgumentError, match="Adam"):
        TorchUpdate("adam", NAMES, values())
    with pytest.raises(NotOfferedError, match="LBFGS"):
        TorchUpdate(LBFGS(), NAMES, values())
    with pytest.raises(CheckpointError, match="2 optimizer"):
        TorchUpdate(SGD(), NAMES, values()).load({"optimizers": [{}, {}], "schedules": []})
