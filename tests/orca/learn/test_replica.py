"""Replicas of a gang are one model: whatever the split, optimizer and sync, the weights are a single process's."""

from __future__ import annotations

import contextlib
import copy
import gc
import itertools
import logging
import os

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from zoo.orca.engine.gang import run_gang
from zoo.orca.errors import PreconditionError
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
    return [range(start, stop) for start, stop in itertools.pairwise(bounds)]


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
            torch.testing.assert_close(
                found[key], value.detach(), msg=lambda text, key=key: f"{key}: {text}", **tolerance
            )
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


@pytest.mark.parametrize(
    ("name", "options"),
    [("bigdl", {"shared_memory": False}), ("torch_distributed", {"shared_memory": False}), ("horovod", {})],
    ids=["bigdl-gloo", "torch_distributed-gloo", "horovod"],
)
def test_other_connections_give_the_same(gang, name, options):
    shapes, clip = [(7, 5), (11,), ()], ("norm", 0.05)
    net, alone, losses = train_alone(shapes, "adam", 8, clip)
    results = gang(train_in_gang, 3, make_sync(name, **options), shapes, "adam", 8, [3, 3], clip)
    assert len({digest for _, _, _, digest, _ in results}) == 1
    assert_same_tensors(results[1][0], net.state_dict(), rtol=2e-4, atol=2e-5)
    assert_same_tensors(results[1][1], alone.state_dict(), rtol=2e-3, atol=2e-5)
    assert results[1][2] == pytest.approx(losses, rel=1e-4)


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_each_rank_keeps_its_part_of_the_state(gang, world_size):
    shapes = [(160, 100), (160,), (10, 160)]
    results = gang(train_in_gang, world_size, make_sync("bigdl"), shapes, "adamw", 8, [2, 4, 6][: world_size - 1])
    sizes = [size for *_, size in results]
    whole = 2 * sum(int(np.prod(shape)) for shape in shapes)
    assert sum(sizes) == whole
    assert max(sizes) <= whole / world_size * 1.01


def test_the_same_bits_on_every_engine(engine):
    """The sum is made in the order of ranks, whoever runs them."""
    shapes = [(40, 30), (40,), (3, 40)]
    results = run_gang(engine, train_in_gang, 3, make_sync("bigdl"), shapes, "adam", 9, [2, 5])
    assert len({digest for _, _, _, digest, _ in results}) == 1
    expected = "".join(f"{float(value):.6f}" for value in train_alone(shapes, "adam", 9)[2])
    assert "".join(f"{value:.6f}" for value in results[0][2]) == expected
    DIGESTS.add(results[0][3])
    assert len(DIGESTS) == 1


DIGESTS: set[str] = set()


def continue_in_gang(worker, sync, shapes, states, steps):
    """Train on from a saved state, and give weights and state."""
    torch.set_num_threads(1)
    with sync.join(worker) as group:
        net = Net(shapes)
        optimizer = make_optimizer("adam", net)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        replica = Replica(group, [optimizer], sync.sharded)
        later = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (1 + step))
        if states is not None:
            net.load_state_dict(states["net"])
            replica.load_optimizer_states(states["optimizers"])
            scheduler.load_state_dict(states["scheduler"])
            later.load_state_dict(states["later"])
        part = cut(8, range(2, 8, 2))[worker.rank] if worker.world_size == 4 else group.slice(8)
        for batch in batches(8, len(shapes))[:steps]:
            optimizer.zero_grad()
            net(batch[part.start : part.stop]).mean().backward()
            replica.weight = part.stop - part.start  # any numbers will do, for their sum divides them
            optimizer.step()
            scheduler.step()
            later.step()
        return {
            "net": copy.deepcopy(net.state_dict()),
            "optimizers": replica.optimizer_states(),
            "scheduler": scheduler.state_dict(),
            "later": {key: value for key, value in later.state_dict().items() if key != "lr_lambdas"}
            | {"lr_lambdas": [None, None]},
        }


def test_state_goes_from_one_world_size_to_another(gang, tmp_path):
    shapes = [(9, 7), (5,), (), (30,)]
    states = None
    for name, world_size in [("bigdl", 3), ("bigdl", 2), ("torch_distributed", 2), ("bigdl", 4), ("bigdl", 1)]:
        found = gang(continue_in_gang, world_size, make_sync(name), shapes, states, 2)
        states = found[0]
        torch.save(states["optimizers"], tmp_path / "optimizers.pt")
        states["optimizers"] = torch.load(tmp_path / "optimizers.pt", weights_only=True)
    alone = None
    for _ in range(5):
        (alone,) = gang(continue_in_gang, 1, make_sync("solo"), shapes, alone, 2)
    assert_same_tensors(states["net"], alone["net"], rtol=2e-4, atol=2e-5)
    assert_same_tensors(states["optimizers"][0]["state"], alone["optimizers"][0]["state"], rtol=2e-3, atol=2e-5)
    assert states["optimizers"][0]["param_groups"] == alone["optimizers"][0]["param_groups"]
    net = Net(shapes)
    make_optimizer("adam", net).load_state_dict(states["optimizers"][0])  # plain torch takes it


def in_gang(worker, sync, scenario):
    """Run a scenario on its rank's rows of the same batches, and say what the weights became."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with sync.join(worker) as group:
        models, optimizers, steps = scenario(lambda batch: batch[group.slice(len(batch))])
        replica = Replica(group, optimizers, sync.sharded)
        steps()
        return [copy.deepcopy(model.state_dict()) for model in models], replica.digest(models)


def alone(scenario):
    torch.manual_seed(0)
    models, _, steps = scenario(lambda batch: batch)
    steps()
    return [model.state_dict() for model in models]


def two_models(part):
    """A GAN's shape: an optimizer for each model, and a third one over a layer of both."""
    first, second = nn.Linear(4, 6), nn.Linear(6, 2)
    optimizers = [
        torch.optim.Adam(first.parameters(), lr=0.01),
        torch.optim.SGD(second.parameters(), lr=0.1, momentum=0.9),
        torch.optim.RMSprop([first.bias, second.weight], lr=0.01),
    ]

    def steps():
        for batch in batches(6, 4):
            for optimizer in optimizers:
                for each in optimizers:
                    each.zero_grad(set_to_none=False)
                second(first(part(batch)).relu()).square().mean().backward()
                optimizer.step()

    return [first, second], optimizers, steps


def closures(part):
    net = nn.Linear(4, 1)
    optimizers = [torch.optim.LBFGS(net.parameters(), max_iter=5, line_search_fn="strong_wolfe")]
    optimizers.append(torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5))

    def steps():
        for batch in batches(6, 4):
            for optimizer in optimizers:

                def closure(batch=batch, optimizer=optimizer):
                    optimizer.zero_grad()
                    loss = (net(part(batch)).squeeze(1) - part(batch).sum(1)).square().mean()
                    loss.backward()
                    return loss

                optimizer.step(closure)

    return [net], optimizers, steps


def sparse(part):
    net = nn.Embedding(20, 3, sparse=True)
    twin = nn.Embedding(20, 3, sparse=True)
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.5), torch.optim.SparseAdam(twin.parameters(), lr=0.5)]

    def steps():
        for batch in batches(6, 4):
            rows = (part(batch) * 3).long() % 20
            for model, optimizer in zip((net, twin), optimizers, strict=True):
                optimizer.zero_grad()
                model(rows).square().mean().backward()
                optimizer.step()

    return [net, twin], optimizers, steps


def dtypes_and_layouts(part):
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.wide = nn.Linear(4, 3).double()
            self.images = nn.Conv2d(4, 5, 3, padding=1).to(memory_format=torch.channels_last)
            self.head = nn.Linear(5, 1)

    net = Mixed()
    optimizers = [torch.optim.Adam(net.parameters(), lr=0.01), torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.5)]

    def steps():
        for batch in batches(6, 4 * 9):
            for optimizer in optimizers:
                optimizer.zero_grad()
                images = part(batch).view(-1, 4, 3, 3)
                out = net.head(net.images(images).relu().mean((2, 3))).square().mean()
                (out + net.wide(part(batch)[:, :4].double()).square().mean()).backward()
                optimizer.step()

    return [net], optimizers, steps


def complex_numbers(part):
    class Waves(nn.Module):
        def __init__(self):
            super().__init__()
            self.turn = nn.Parameter(torch.randn(4, dtype=torch.complex64))

    net = Waves()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)

    def steps():
        for batch in batches(6, 4):
            optimizer.zero_grad()
            (part(batch) * net.turn).sum(1).abs().square().mean().backward()
            optimizer.step()

    return [net], [optimizer], steps


def changes_on_the_way(part):
    """Layers are unfrozen, groups added, memory moved and learning rates set while training."""
    first, second, third = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 1)
    first.requires_grad_(False)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)
    models = [first, second, third]

    def step(batch):
        optimizer.zero_grad()
        third(second(first(part(batch)).relu()).relu()).square().mean().backward()
        optimizer.step()

    def steps():
        for batch in batches(6, 4):
            step(batch)
        first.requires_grad_(True)
        for batch in batches(6, 4):
            step(batch)
        optimizer.add_param_group({"params": list(third.parameters()), "lr": 0.1})
        for batch in batches(6, 4):
            step(batch)
        second.weight.data = second.weight.data.clone()
        optimizer.param_groups[0]["lr"] = 0.05
        for batch in batches(6, 4):
            step(batch)

    return models, [optimizer], steps


@pytest.mark.parametrize("name", ["bigdl", "torch_distributed"])
@pytest.mark.parametrize(
    "scenario", [two_models, closures, sparse, dtypes_and_layouts, complex_numbers, changes_on_the_way]
)
def test_what_users_do_is_what_one_process_does(gang, scenario, name):
    expected = alone(scenario)
    for weights, _ in gang(in_gang, 3, make_sync(name), scenario):
        for found, model in zip(weights, expected, strict=True):
            assert_same_tensors(found, model, rtol=5e-4, atol=5e-5)


def test_narrow_numbers_are_summed_as_wide_ones(gang):
    def train(worker, sync):
        with sync.join(worker) as group:
            net = nn.Linear(64, 3, bias=False).to(torch.bfloat16)
            nn.init.ones_(net.weight)
            optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
            replica = Replica(group, [optimizer], sync.sharded)
            # In bfloat16 1 + 1/256 is 1, so that a narrow sum would lose every rank but the first.
            net.weight.grad = torch.full_like(net.weight, 1.0 if group.rank == 0 else 1 / 256)
            replica.weight = 1.0
            optimizer.step()
            return net.weight.dtype, net.weight.detach().float().unique().tolist()

    for name in ("bigdl", "torch_distributed"):
        expected = 1 - torch.tensor((1 + 3 / 256) / 4).bfloat16().float().item()
        for dtype, values in gang(train, 4, make_sync(name)):
            assert dtype == torch.bfloat16
            assert values == pytest.approx([expected], abs=1 / 256)


def test_optimizers_of_ones_own(gang, caplog):
    def train(worker, sync, elementwise):
        class Mine(torch.optim.Optimizer):
            def __init__(self, params, strength):
                super().__init__(params, {"strength": strength, "calls": 0})

            @torch.no_grad()
            def step(self, closure=None):
                for group in self.param_groups:
                    group["calls"] += 1
                    for param in group["params"]:
                        if param.grad is not None:
                            state = self.state[param]
                            state["seen"] = state.get("seen", torch.zeros_like(param)) + param.grad
                            param -= group["strength"] / group["calls"] * state["seen"]

        if elementwise:
            Mine.elementwise = True
        with sync.join(worker) as group:
            torch.manual_seed(0)
            net = nn.Linear(8, 8)
            optimizers = [Mine(net.parameters(), 0.1), Mine([net.bias], 0.1)]
            replica = Replica(group, optimizers, sync.sharded)
            for batch in batches(6, 8):
                for optimizer in optimizers:
                    optimizer.zero_grad()
                    net(batch[group.slice(6)]).square().mean().backward()
                    optimizer.step()
            return net.weight.detach(), optimizers[0].param_groups[0]["calls"], _state_size(replica)

    with caplog.at_level(logging.WARNING, "zoo.orca"):
        ((weight, calls, whole),) = gang(train, 1, make_sync("bigdl"), False)
        assert not caplog.records
        parts = gang(train, 2, make_sync("bigdl"), True)
        assert not caplog.records
        wholes = gang(train, 2, make_sync("bigdl"), False)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "Mine is not known to update every element alone" in caplog.text
    for found in (*parts, *wholes):
        torch.testing.assert_close(found[0], weight, rtol=1e-4, atol=1e-5)
        assert found[1] == calls == 3
    assert [size for *_, size in wholes] == [whole, whole]
    assert sum(size for *_, size in parts) == whole


def test_models_start_alike_and_buffers_agree(gang):
    def buffers(worker, sync):
        with sync.join(worker) as group:
            torch.manual_seed(worker.rank)
            net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
            with torch.no_grad():
                net[1].running_mean.fill_(float(worker.rank))
                net[1].num_batches_tracked.fill_(worker.rank)
            replica = Replica(group, [], sync.sharded)
            before = replica.digest([net])
            if worker.rank == 1:
                net[1].running_var.fill_(float("nan"))
            replica.average_buffers([net], rows=[3, 0, 1][worker.rank])
            averaged = net[1].running_mean.tolist(), net[1].running_var.tolist(), int(net[1].num_batches_tracked)
            replica.broadcast_models([net])
            return before, averaged, replica.digest([net])

    results = gang(buffers, 3, make_sync("bigdl"))
    before, averaged, after = zip(*results, strict=True)
    assert len(set(before)) == 3
    assert len(set(after)) == 1
    assert averaged[0] == averaged[1] == averaged[2] == ([0.5] * 3, [1.0] * 3, 2)


def test_memory_is_given_back_without_waiting_for_the_collector(gang):
    def train(worker, sync, closes):
        gc.disable()
        try:
            with sync.join(worker) as group:
                net = nn.Linear(100, 100)
                optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
                replica = Replica(group, [optimizer], sync.sharded)
                scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
                net(torch.ones(2, 100)).mean().backward()
                optimizer.step()
                scheduler.step()
                if closes:
                    replica.close()
                    with pytest.raises(PreconditionError, match="this optimizer's gang is over"):
                        optimizer.step()
                else:
                    del net, optimizer, scheduler
                del replica, group
            return [link for link in descriptors() if "orca-sync" in link]
        finally:
            gc.enable()

    for name, closes in itertools.product(("bigdl", "torch_distributed"), (False, True)):
        assert gang(train, 2, make_sync(name), closes) == [[], []]


def descriptors():
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            yield os.readlink(f"/proc/self/fd/{number}")


def test_a_step_that_some_ranks_miss_is_an_error(gang):
    def train(worker, sync):
        with sync.join(worker) as group:
            nets = [nn.Linear(4, 1), nn.Linear(5, 1)]
            optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
            replica = Replica(group, optimizers, sync.sharded)
            for optimizer in (*optimizers, optimizers[worker.rank]):
                optimizer.step()
            return replica.global_loss

    with pytest.raises(ValueError, match=r"Call optimizer.step\(\) on every rank or on none"):
        gang(train, 2, make_sync("bigdl"))
