"""Replicas of a gang are one model: whatever the split, the optimizer and the sync, the weights are a single process's."""

from __future__ import annotations

import copy
import logging

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from zoo.orca.engine.gang import run_gang
from zoo.orca.engine.local import LocalEngine
from zoo.orca.learn.pytorch.replica import Replica
from zoo.orca.learn.sync import make_sync

STEPS = 3
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "adam": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True, "weight_decay": 0.01}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01}),
    "adamax": (torch.optim.Adamax, {"lr": 0.01}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.05, "initial_accumulator_value": 0.1}),
    "adadelta": (torch.optim.Adadelta, {"lr": 1.0}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.01, "centered": True, "momentum": 0.5}),
    "nadam": (torch.optim.NAdam, {"lr": 0.01}),
    "radam": (torch.optim.RAdam, {"lr": 0.01}),
    "asgd": (torch.optim.ASGD, {"lr": 0.05, "t0": 1.0}),
    "rprop": (torch.optim.Rprop, {"lr": 0.01}),
}


@pytest.fixture(scope="module")
def gang():
    """Gangs on an embedded engine of this module's own, so that its processes are started once."""
    with LocalEngine(cores=4) as engine:
        yield lambda function, n, *args: run_gang(engine, function, n, *args)


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """The processes of the module's engine stay between tests; the contract tests look at what syncs leave."""


class Net(nn.Module):
    """Parameters of any shapes; the output depends on all of them but the last."""

    def __init__(self, shapes, dtype=torch.float32, seed=0):
        super().__init__()
        source = torch.Generator().manual_seed(seed)
        self.weights = nn.ParameterList(
            nn.Parameter(torch.randn(shape, generator=source, dtype=torch.float64).to(dtype)) for shape in shapes
        )
        self.unused = nn.Parameter(torch.ones(3, dtype=dtype))
        self.frozen = nn.Parameter(torch.ones(2, dtype=dtype), requires_grad=False)

    def forward(self, x):
        # Each row's factor differs, so that a row counted twice or not at all shows.
        return sum((weight.tanh() * x[:, number, None]).pow(2).mean(1) for number, weight in self.flat())

    def flat(self):
        return ((number, weight.reshape(1, -1)) for number, weight in enumerate(self.weights) if weight.numel())


def batches(rows, features, dtype=torch.float32):
    source = torch.Generator().manual_seed(7)
    return [torch.randn(rows, features, generator=source, dtype=torch.float64).to(dtype) for _ in range(STEPS)]


def cut(rows, cuts):
    bounds = [0, *sorted(min(each, rows) for each in cuts), rows]
    return [range(start, stop) for start, stop in zip(bounds, bounds[1:], strict=False)]


def make_optimizer(name, net):
    cls, options = OPTIMIZERS[name]
    weights = list(net.weights)
    half = len(weights) // 2
    groups = [{"params": [*weights[half:], net.unused, net.frozen]}]
    if half:
        groups.insert(0, {"params": weights[:half], "lr": options["lr"] / 2})
    return cls(groups, **options)


def train_alone(shapes, optimizer_name, rows, clip=None, dtype=torch.float32):
    """The truth: plain torch, one process, the whole batch."""
    net = Net(shapes, dtype)
    optimizer = make_optimizer(optimizer_name, net)
    losses = []
    for batch in batches(rows, len(shapes), dtype):
        optimizer.zero_grad()
        loss = net(batch).mean()
        loss.backward()
        if clip and clip[0] == "norm":
            nn.utils.clip_grad_norm_(net.parameters(), clip[1])
        elif clip:
            for param in net.parameters():
                if param.grad is not None:
                    param.grad.clamp_(*clip[1:])
        optimizer.step()
        losses.append(float(loss.detach()))
    return net, optimizer, losses


def train_in_gang(worker, sync, shapes, optimizer_name, rows, cuts, clip=None, dtype=torch.float32):
    torch.set_num_threads(1)
    part = cut(rows, cuts)[worker.rank]
    with sync.join(worker) as group:
        net = Net(shapes, dtype, seed=worker.rank)
        optimizer = make_optimizer(optimizer_name, net)
        replica = Replica(group, [optimizer], sync.sharded, clip)
        replica.broadcast_models([net])
        losses = []
        for batch in batches(rows, len(shapes), dtype):
            optimizer.zero_grad()
            # A rank without rows computes on others' and counts for nothing, be they numbers or not.
            mine = batch[part.start : part.stop] if part else batch[:1] * float("nan")
            loss = net(mine).mean()
            loss.backward()
            replica.weight, replica.loss = len(part) / rows, loss.detach()
            optimizer.step()
            losses.append(replica.global_loss)
        return (
            copy.deepcopy(net.state_dict()),
            replica.optimizer_states()[0],
            losses,
            replica.digest([net]),
            _state_size(replica),
        )


def _state_size(replica):
    """Elements of optimizer state that this rank keeps, over the elements that a whole one has for each."""
    update = replica._updates[0]
    optimizer = getattr(update, "_twin", update.optimizer)
    return sum(
        value.numel()
        for state in optimizer.state.values()
        for value in state.values()
        if torch.is_tensor(value) and value.dim()
    )


def assert_same_tensors(found, expected, **tolerance):
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        if torch.is_tensor(value):
            torch.testing.assert_close(found[key], value.detach(), msg=lambda text, key=key: f"{key}: {text}", **tolerance)
        elif isinstance(value, dict):
            assert_same_tensors(found[key], value, **tolerance)
        else:
            assert found[key] == value, key


SHAPES = st.lists(
    st.one_of(
        st.tuples(st.integers(1, 40)),
        st.tuples(st.integers(1, 9), st.integers(1, 9)),
        st.just(()),
        st.just((0,)),
        st.just((2, 3, 4)),
    ),
    max_size=4,
).map(lambda shapes: [*shapes, (3,)])
QUICK = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}


@settings(max_examples=25, **QUICK)
@given(
    world_size=st.integers(1, 4),
    shapes=SHAPES,
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    rows=st.integers(1, 9),
    cuts=st.lists(st.integers(0, 9), min_size=3, max_size=3),
    clip=st.sampled_from([None, ("norm", 0.05), ("value", -0.01, 0.02)]),
)
def test_sharded_is_replicated_is_alone(gang, world_size, shapes, optimizer, rows, cuts, clip):
    net, alone, losses = train_alone(shapes, optimizer, rows, clip)
    for name in ("bigdl", "torch_distributed"):
        sync = make_sync(name)
        results = gang(train_in_gang, world_size, sync, shapes, optimizer, rows, cuts[: world_size - 1], clip)
        assert len({digest for _, _, _, digest, _ in results}) == 1, "all ranks hold the same bits"
        for weights, state, seen, _, _ in results:
            assert_same_tensors(weights, net.state_dict(), rtol=2e-4, atol=2e-5)
            assert_same_tensors(state, alone.state_dict(), rtol=2e-3, atol=2e-5)
            assert seen == pytest.approx(losses, rel=1e-4, abs=1e-6)
