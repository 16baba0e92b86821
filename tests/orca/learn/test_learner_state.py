"""A PyTorch learner that is interrupted: what it holds, written down and read again, goes on to the same bits."""

from __future__ import annotations

import random
from contextlib import closing

import numpy as np
import pytest
import torch
from torch import nn

from zoo.orca.feed.base import Share
from zoo.orca.learn.checkpoint import read_state, write_state
from zoo.orca.learn.metrics import MSE
from zoo.orca.learn.pytorch import Estimator, TrainingOperator
from zoo.orca.learn.sync import make_sync

STEPS = 7
ROWS = 6


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """The processes of the module's engine stay between tests."""


class Net(nn.Module):
    """Dropout, running statistics, and a buffer that no file holds."""

    def __init__(self, norm=True):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(3, 8), nn.BatchNorm1d(8) if norm else nn.Identity(), nn.Dropout(0.3 if norm else 0.0)
        )
        self.head = nn.Linear(8, 1)
        self.register_buffer("calls", torch.zeros(1), persistent=False)

    def forward(self, x):
        if self.training and isinstance(self.layers[1], nn.BatchNorm1d):
            self.calls += 1
        return self.head(self.layers(x)) + 0.001 * self.calls


class Noisy(TrainingOperator):
    """Draws from every generator, measures what it drew, and has a state of its own that differs by rank."""

    def setup(self, config):
        self.total = torch.zeros(())

    def train_batch(self, batch, batch_info):
        features, target = batch
        noise = float(np.random.normal()) + random.gauss(0, 1) + float(torch.rand(()))
        self.total = self.total + features.sum()
        figures = super().train_batch((features + 0.01 * noise, target + 0.01 * self.total), batch_info)
        return figures | {"noise": noise, "batch": batch_info["batch_idx"], "note": (batch_info["global_step"], "a")}

    def state_dict(self):
        return {"total": self.total}

    def load_state_dict(self, state_dict):
        self.total = state_dict["total"]


def make_net(config):
    return Net(config.get("norm", True))


def make_optimizer(model, config):
    return torch.optim.Adam(model.parameters(), lr=0.05)


def make_scheduler(optimizer, config):
    return torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)


def small_loss(output, target):
    return nn.functional.mse_loss(output, target) / 100


def learning(backend="bigdl", operator=Noisy, **options):
    given = {"loss": small_loss, "scheduler_creator": make_scheduler, "metrics": MSE()}
    est = Estimator.from_torch(
        model=make_net,
        optimizer=make_optimizer,
        training_operator_cls=operator,
        backend=backend,
        **(given | options),
    )
    return est._learning()


def shares(rank, world_size, ghost=2):
    """This rank's part of every batch; of one the last rank has rows that count for nothing."""
    source = np.random.default_rng(0)
    found = []
    for step in range(STEPS):
        x = source.normal(size=(ROWS, 3)).astype(np.float32)
        y = x.sum(axis=1, keepdims=True)
        mine = slice(rank * ROWS // world_size, (rank + 1) * ROWS // world_size)
        is_ghost = step == ghost and world_size > 1 and rank == world_size - 1
        total = ROWS if step != ghost or world_size == 1 else ROWS - ROWS // world_size
        found.append(Share((x[mine], y[mine]), 0 if is_ghost else mine.stop - mine.start, total))
    return found


class Batches:
    """An epoch as a worker hands it out, from a batch on; `between` is called with the number of batches done."""

    def __init__(self, learner, shares, first=0, between=lambda done: None):
        self.learner, self.shares, self.first, self.between = learner, shares, first, between
        self.rows = 0

    def __iter__(self):
        for index, share in enumerate(self.shares[self.first :], self.first):
            self.rows = share.rows
            yield self.learner.take(share, index == len(self.shares) - 1)
            self.learner.after_step()
            self.between(index + 1)


def ended(learner, figures):
    """What an epoch left: figures, weights, the state of training, and the numbers that would be drawn next."""
    learner.after_epoch(sum(share.rows for share in shares(learner.rank, 1)), learner.loss, None)
    state = learner.state()
    drawn = float(torch.rand(())), float(np.random.rand()), random.random()
    return {"figures": figures, "digest": learner.digest(), "state": state, "drawn": drawn, "loss": learner.loss}


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def interrupted_everywhere(worker, sync, made, folder):
    """Train an epoch, writing all down after every step; then go on from each of those, and compare the ends."""
    torch.set_num_threads(1)
    mine = shares(worker.rank, worker.world_size)
    path = f"{folder}/{worker.rank}"

    def write(learner, done):
        write_state(f"{path}-{done}", {"all": learner.state(), "mine": learner.local_state()})

    with sync.join(worker) as group:
        with closing(made.build(worker, group, None)) as learner:
            learner.start_epoch(3)
            batches = Batches(learner, mine, between=lambda done: write(learner, done))
            undisturbed = ended(learner, learner.train_epoch(batches, {}))
        differ = []
        for done in range(1, STEPS):
            written = read_state(f"{path}-{done}")
            shared = worker.all_gather(written["all"])[0]
            np.random.seed(0)
            random.seed(0)
            torch.manual_seed(0)
            with closing(made.build(worker, group, shared)) as learner:
                learner.start_epoch(3)
                learner.load_local(written["mine"], within_epoch=True)
                found = ended(learner, learner.train_epoch(Batches(learner, mine, done), {}))
            differ += [(done, key) for key in undisturbed if not same(undisturbed[key], found[key])]
        return differ, undisturbed["digest"], undisturbed["figures"]


@pytest.mark.parametrize(
    ("backend", "world_size", "options"),
    [
        ("bigdl", 1, {"accumulate": 3, "precision": "fp16"}),
        ("bigdl", 2, {"accumulate": 3, "precision": "fp16", "clip_norm": 0.1}),
        ("torch_distributed", 2, {"accumulate": 2, "precision": "bf16"}),
        ("torch_distributed", 3, {}),
    ],
    ids=str,
)
def test_interrupted_after_any_step(gang, tmp_path, backend, world_size, options):
    made = learning(backend, **options)
    results = gang(interrupted_everywhere, world_size, make_sync(backend), made, str(tmp_path))
    assert [differ for differ, _, _ in results] == [[]] * world_size
    assert len({digest for _, digest, _ in results}) == 1
    figures = [figures for _, _, figures in results]
    assert {each["batch_count"] for each in figures} == {STEPS}, "the whole epoch counts"
    assert figures[0]["last_note"] == (STEPS - 1, "a")
    assert len({each["noise"] for each in figures}) == world_size, "each rank draws its own"


def in_the_middle(worker, sync, made):
    """State and validation in the middle of an epoch: what ranks agree on, and what each keeps."""
    torch.set_num_threads(1)
    seen = {}

    def look(learner, done):
        if done != 4:
            return
        norm = learner.native.layers[1]
        own = norm.running_mean.clone()
        state = learner.state()
        kept = {name: value.clone() for name, value in state["models"][0].items()}
        rows = shares(worker.rank, worker.world_size)
        total = {name: [float(value)] for name, value in learner.validate(rows[:1], {})[0].items()}
        seen.update(own=own, still=norm.running_mean.clone(), state=state, kept=kept, validated=total)
        seen["same_rows"] = learner.validate(shares(0, 1)[:1], {})[0]["val_loss"]

    with sync.join(worker) as group, closing(made.build(worker, group, None)) as learner:
        learner.start_epoch(0)
        mine = shares(worker.rank, worker.world_size)
        learner.train_epoch(Batches(learner, mine, between=lambda done: look(learner, done)), {})
    agreed = seen["state"]["models"][0]["layers.1.running_mean"]
    return {
        "own": seen["own"],
        "untouched": torch.equal(seen["own"], seen["still"]),
        "agreed": agreed,
        "snapshot": same(seen["state"]["models"][0], seen["kept"]),
        "same_rows": seen["same_rows"],
        "rows": sum(share.rows for share in mine[:4]),
    }


def test_ranks_agree_on_statistics_in_the_middle_of_an_epoch(gang):
    results = gang(in_the_middle, 3, make_sync("bigdl"), learning(accumulate=4))
    assert all(each["untouched"] and each["snapshot"] for each in results)
    rows = [each["rows"] for each in results]
    assert len(set(rows)) > 1
    mean = sum(each["own"].double() * each["rows"] for each in results) / sum(rows)
    for each in results:
        torch.testing.assert_close(each["agreed"].double(), mean, rtol=1e-6, atol=1e-7)
    assert len({each["same_rows"] for each in results}) == 1, "all measure the same model"
    assert not torch.equal(results[0]["own"], results[1]["own"])


def half_an_epoch(worker, sync, made, state, first, last):
    """Train some batches of an epoch, with any number of workers."""
    torch.set_num_threads(1)
    mine = shares(worker.rank, worker.world_size, ghost=None)
    states = {}

    def keep(learner, done):
        if done == last:
            states["all"] = learner.state()

    with sync.join(worker) as group, closing(made.build(worker, group, state)) as learner:
        learner.start_epoch(0)
        learner.train_epoch(Batches(learner, mine, first, lambda done: keep(learner, done)), {})
    return states["all"]


@pytest.mark.parametrize("backend", ["bigdl", "torch_distributed"])
def test_gradients_that_wait_go_over_to_another_number_of_workers(gang, backend):
    """Three batches make a step; after two of them there are one or three workers instead of two."""
    made = learning(backend, TrainingOperator, accumulate=3, config={"norm": False})
    sync = make_sync(backend)
    whole = gang(half_an_epoch, 2, sync, made, None, 0, STEPS)[0]
    half = gang(half_an_epoch, 2, sync, made, None, 0, 2)[0]
    assert "held" in half["operator"]
    assert "held" not in whole["operator"]
    for workers in (1, 3):
        found = gang(half_an_epoch, workers, sync, made, half, 2, STEPS)[0]
        for name, value in whole["models"][0].items():
            torch.testing.assert_close(found["models"][0][name], value, rtol=1e-4, atol=1e-6)
    forgetful = half | {"operator": {key: each for key, each in half["operator"].items() if key != "held"}}
    lost = gang(half_an_epoch, 1, sync, made, forgetful, 2, STEPS)[0]
    assert not torch.allclose(lost["models"][0]["head.weight"], whole["models"][0]["head.weight"], atol=1e-6)


def test_an_epoch_starts_the_same_however_often_it_is_run(gang):
    def draws(worker, sync, made):
        with sync.join(worker) as group, closing(made.build(worker, group, None)) as learner:
            found = []
            for epoch in (0, 1, 0):
                learner.start_epoch(epoch)
                found.append((float(torch.rand(())), float(np.random.rand()), random.random()))
            return found

    results = gang(draws, 2, make_sync("bigdl"), learning())
    for first, second, again in results:
        assert first == again
        assert not set(first) & set(second)
    assert not set(results[0][0]) & set(results[1][0]), "ranks differ"
