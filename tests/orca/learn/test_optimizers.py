"""Orca's optimizers against updates written in numpy, and schedules against their formulas."""

from __future__ import annotations

import io
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from zoo.orca.errors import InvalidArgumentError, NotOfferedError
from zoo.orca.learn.optimizers import (
    DOUBLEMAX,
    LBFGS,
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    Ftrl,
    ParallelAdam,
    RMSprop,
)
from zoo.orca.learn.optimizers.schedule import (
    Default,
    Exponential,
    MultiStep,
    Plateau,
    Poly,
    SequentialSchedule,
    Step,
    Warmup,
)

STEPS = 5
START = np.array([1.0, -2.0, 0.5, 0.0])
GRADIENTS = np.random.default_rng(5).normal(size=(STEPS, 4))


def trained(optimizer, steps: int = STEPS) -> np.ndarray:
    """The weights after steps with known gradients, with the schedule stepped as a learner does."""
    weights = torch.nn.Parameter(torch.tensor(START))
    torch_optimizer = optimizer.torch_optimizer([weights])
    scheduler = optimizer.torch_scheduler(torch_optimizer)
    for gradient in GRADIENTS[:steps]:
        weights.grad = torch.tensor(gradient)
        torch_optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return weights.detach().numpy()


def by_hand(update) -> np.ndarray:
    """The weights after `update(weights, gradient, step, memory)` at each step, steps from 0."""
    weights, memory = START.copy(), {}
    for step, gradient in enumerate(GRADIENTS):
        weights = update(weights, gradient, step, memory)
    return weights


def sgd(lr, decay=0.0, weightdecay=0.0, momentum=0.0, dampening=0.0, nesterov=False):
    def update(w, g, t, memory):
        g = g + weightdecay * w
        if momentum:
            memory["v"] = momentum * memory["v"] + (1 - dampening) * g if "v" in memory else g
            g = g + momentum * memory["v"] if nesterov else memory["v"]
        return w - lr / (1 + t * decay) * g

    return update


def adam(lr, decay=0.0, beta1=0.9, beta2=0.999, eps=1e-8):
    def update(w, g, t, memory):
        memory["m"] = beta1 * memory.get("m", 0) + (1 - beta1) * g
        memory["v"] = beta2 * memory.get("v", 0) + (1 - beta2) * g * g
        m, v = memory["m"] / (1 - beta1 ** (t + 1)), memory["v"] / (1 - beta2 ** (t + 1))
        return w - lr / (1 + t * decay) * m / (np.sqrt(v) + eps)

    return update


def adagrad(lr, decay, weightdecay):
    def update(w, g, t, memory):
        g = g + weightdecay * w
        memory["sum"] = memory.get("sum", 0) + g * g
        return w - lr / (1 + t * decay) * g / (np.sqrt(memory["sum"]) + 1e-10)

    return update


def adadelta(rho, eps):
    def update(w, g, t, memory):
        memory["g"] = rho * memory.get("g", 0) + (1 - rho) * g * g
        delta = np.sqrt(memory.get("d", 0) + eps) / np.sqrt(memory["g"] + eps) * g
        memory["d"] = rho * memory.get("d", 0) + (1 - rho) * delta * delta
        return w - delta

    return update


def adamax(lr, beta1, beta2, eps):
    def update(w, g, t, memory):
        memory["m"] = beta1 * memory.get("m", 0) + (1 - beta1) * g
        memory["u"] = np.maximum(beta2 * memory.get("u", 0), np.abs(g) + eps)
        return w - lr / (1 - beta1 ** (t + 1)) * memory["m"] / memory["u"]

    return update


def rmsprop(lr, decay, rho, eps):
    def update(w, g, t, memory):
        memory["v"] = rho * memory.get("v", 0) + (1 - rho) * g * g
        return w - lr / (1 + t * decay) * g / (np.sqrt(memory["v"]) + eps)

    return update


def ftrl(lr, power, initial, l1, l2, shrinkage):
    def update(w, g, t, memory):
        n = memory.get("n", np.full_like(w, initial))
        z = memory.get("z", np.zeros_like(w))
        sigma = ((n + g * g) ** -power - n**-power) / lr
        z = z + g + 2 * shrinkage * w - sigma * w
        n = n + g * g
        memory.update(n=n, z=z)
        return np.where(np.abs(z) > l1, (np.sign(z) * l1 - z) / (n**-power / lr + 2 * l2), 0.0)

    return update


@pytest.mark.parametrize(
    ("optimizer", "update"),
    [
        (SGD(), sgd(1e-3)),
        (SGD(0.1, learningrate_decay=0.5, weightdecay=0.01), sgd(0.1, 0.5, 0.01)),
        (SGD(0.1, momentum=0.9), sgd(0.1, momentum=0.9, dampening=0.9)),
        (SGD(0.1, momentum=0.9, dampening=DOUBLEMAX), sgd(0.1, momentum=0.9, dampening=0.9)),
        (SGD(0.1, momentum=0.9, dampening=0.2), sgd(0.1, momentum=0.9, dampening=0.2)),
        (SGD(0.1, momentum=0.9, dampening=0, nesterov=True), sgd(0.1, momentum=0.9, nesterov=True)),
        (SGD(0.1, learningrate_decay=0.5, learningrate_schedule=Default()), sgd(0.1, 0.5)),
        (Adam(0.1), adam(0.1)),
        (Adam(0.1, 0.5, 0.8, 0.9, 1e-3), adam(0.1, 0.5, 0.8, 0.9, 1e-3)),
        (ParallelAdam(0.1, parallel_num=2), adam(0.1)),
        (Adagrad(0.1, 0.5, 0.01), adagrad(0.1, 0.5, 0.01)),
        (Adadelta(), adadelta(0.9, 1e-10)),
        (Adamax(), adamax(0.002, 0.9, 0.999, 1e-38)),
        (RMSprop(0.1, 0.5, 0.9, 1e-3), rmsprop(0.1, 0.5, 0.9, 1e-3)),
        (Ftrl(0.1), ftrl(0.1, -0.5, 0.1, 0, 0, 0)),
        (Ftrl(0.1, -0.7, 0.2, 0.3, 0.4, 0.5), ftrl(0.1, -0.7, 0.2, 0.3, 0.4, 0.5)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_five_steps_by_hand(optimizer, update):
    assert optimizer.get_optimizer() is optimizer
    for each in (optimizer, pickle.loads(pickle.dumps(optimizer))):
        np.testing.assert_allclose(trained(each), by_hand(update), rtol=1e-9, atol=1e-12)


def test_ftrl_keeps_what_does_not_matter_at_zero():
    assert (trained(Ftrl(0.1, l1_regularization_strength=100.0)) == 0).all()
    assert Ftrl(0.1).torch_optimizer([torch.nn.Parameter(torch.ones(1))]).elementwise


def test_ftrl_takes_a_rate_of_zero_and_weights_never_seen():
    weights = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    torch_optimizer = Ftrl(0.0, initial_accumulator_value=0.0).torch_optimizer([weights])
    weights.grad = torch.tensor([1.0, 0.0])
    torch_optimizer.step()
    assert weights.tolist() == [1.0, 2.0]
    torch_optimizer.param_groups[0]["lr"] = 0.5
    torch_optimizer.step(lambda: 3.0)
    assert torch.isfinite(weights).all()


def test_lbfgs_finds_a_minimum():
    optimizer = LBFGS(max_iter=50)
    assert optimizer.needs_closure
    weights = torch.nn.Parameter(torch.tensor([4.0, -3.0], dtype=torch.float64))
    torch_optimizer = optimizer.torch_optimizer([weights])

    def closure():
        torch_optimizer.zero_grad()
        loss = ((weights - torch.tensor([1.0, 2.0])) ** 2).sum()
        loss.backward()
        return loss

    torch_optimizer.step(closure)
    assert weights.tolist() == pytest.approx([1.0, 2.0], abs=1e-4)
    assert optimizer.torch_scheduler(torch_optimizer) is None


@pytest.mark.parametrize(
    "optimizer", [Adam(0.1), SGD(0.1, momentum=0.9), Ftrl(0.1), RMSprop(0.1)], ids=lambda value: type(value).__name__
)
def test_states_hold_tensors_and_plain_data_only(optimizer):
    weights = torch.nn.Parameter(torch.ones(2))
    torch_optimizer = optimizer.torch_optimizer([weights])
    weights.grad = torch.ones(2)
    torch_optimizer.step()
    file = io.BytesIO()
    torch.save(torch_optimizer.state_dict(), file)
    file.seek(0)
    torch_optimizer.load_state_dict(torch.load(file, weights_only=True))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGD(-0.1), "learningrate to be a number from 0 on"),
        (lambda: SGD("0.1"), "learningrate to be a number"),
        (lambda: Adam(float("nan")), "got nan"),
        (lambda: SGD(learningrate_schedule="step"), "a schedule of zoo.orca.learn.optimizers.schedule"),
        (lambda: SGD(momentum=0.9, nesterov=True), "Add dampening=0"),
        (lambda: Ftrl(learningrate_power=0.5), "0 or less"),
        (lambda: Plateau("accuracy"), "'Loss' or 'score'"),
        (lambda: Plateau("Loss", mode="auto"), "'min' or 'max'"),
        (lambda: Plateau("Loss", factor=1.5), "between 0 and 1"),
        (lambda: Step(0, 0.1), "step_size"),
        (lambda: SequentialSchedule(1).add("warmup", 3), "such as Warmup"),
        (lambda: SequentialSchedule(1).add(Warmup(0.1), 0), "max_iteration"),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(InvalidArgumentError, match=message):
        make()


def test_what_is_not_offered_says_what_to_use():
    for make in (lambda: SGD(learningrates=[0.1]), lambda: SGD(weightdecays=[0.1]), lambda: LBFGS(linesearch="wolfe")):
        with pytest.raises(NotOfferedError, match=r"torch\.optim"):
            make()


def rates(schedule, start: float, iterations: int, decay: float = 0.0) -> list[float]:
    """The rates that a torch optimizer has, iteration by iteration."""
    optimizer = SGD(start, learningrate_decay=decay, learningrate_schedule=schedule)
    torch_optimizer = optimizer.torch_optimizer([torch.nn.Parameter(torch.ones(1))])
    scheduler = optimizer.torch_scheduler(torch_optimizer)
    found = []
    for _ in range(iterations):
        found.append(torch_optimizer.param_groups[0]["lr"])
        torch_optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return found


FORMULAS = [
    (Default(), 0.3, lambda n: 0.5 / (1 + n * 0.3)),
    (Default(), 0.0, lambda n: 0.5),
    (Poly(2, 8), 0.0, lambda n: 0.5 * max(0.0, 1 - n / 8) ** 2),
    (Exponential(4, 0.1), 0.0, lambda n: 0.5 * 0.1 ** (n / 4)),
    (Exponential(4, 0.1, stair_case=True), 0.0, lambda n: 0.5 * 0.1 ** (n // 4)),
    (Step(3, 0.5), 0.0, lambda n: 0.5 * 0.5 ** (n // 3)),
    (MultiStep([2, 5], 0.1), 0.0, lambda n: 0.5 * 0.1 ** ((n >= 2) + (n >= 5))),
    (Warmup(0.1), 0.0, lambda n: 0.5 + 0.1 * n),
    (SequentialSchedule(5), 0.0, lambda n: 0.5),
    (Plateau("Loss"), 0.0, lambda n: 0.5),
    (
        SequentialSchedule(5).add(Warmup(0.1), 5).add(Step(3, 0.5), 100),
        0.0,
        lambda n: 0.5 + 0.1 * n if n < 5 else 1.0 * 0.5 ** ((n - 5) // 3),
    ),
    (
        SequentialSchedule(5).add(Step(2, 0.1), 4).add(Warmup(1.0), 3).add(Poly(1, 10), 2),
        0.0,
        lambda n: 0.5 * 0.1 ** (n // 2) if n < 4 else (0.005 + (n - 4) if n < 7 else 3.005 * (1 - (n - 7) / 10)),
    ),
]


@pytest.mark.parametrize(("schedule", "decay", "formula"), FORMULAS, ids=lambda value: type(value).__name__)
def test_schedules(schedule, decay, formula):
    assert schedule.get_scheduler() is schedule
    assert rates(schedule, 0.5, 12, decay) == pytest.approx([formula(n) for n in range(12)], rel=1e-12)


def followed(optimizer):
    torch_optimizer = optimizer.torch_optimizer([torch.nn.Parameter(torch.ones(1))])
    return torch_optimizer, optimizer.torch_scheduler(torch_optimizer)


def test_plateau_lowers_the_rate_when_nothing_improves():
    torch_optimizer, scheduler = followed(
        SGD(1.0, learningrate_schedule=Plateau("score", factor=0.5, patience=2, mode="max", cooldown=2, min_lr=0.2))
    )
    assert scheduler.monitors == {"score"}
    seen = []
    for score in [0.5, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6]:
        torch_optimizer.step()
        scheduler.step()
        scheduler.observe(loss=9.0, score=score)
        seen.append(torch_optimizer.param_groups[0]["lr"])
    # Two epochs without a better score halve it; the epoch after is cooled down, the one after that counts again.
    assert seen == [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.2, 0.2, 0.2]


def test_plateau_counts_only_what_it_knows_and_what_is_better_by_epsilon():
    torch_optimizer, scheduler = followed(
        SGD(1.0, learningrate_schedule=Plateau("Loss", patience=1, epsilon=0.1, factor=0.5))
    )
    scheduler.observe(score=1.0)
    assert scheduler.memory == {}
    scheduler.observe(loss=1.0)
    scheduler.observe(loss=0.85)
    assert torch_optimizer.param_groups[0]["lr"] == 1.0
    scheduler.observe(loss=0.8)
    assert torch_optimizer.param_groups[0]["lr"] == 0.5
    assert scheduler.get_last_lr() == [0.5]


def test_plateau_after_a_warmup_starts_from_the_rate_reached():
    schedule = SequentialSchedule(1).add(Warmup(0.5), 2).add(Plateau("Loss", factor=0.1, patience=1), 10)
    torch_optimizer, scheduler = followed(SGD(1.0, learningrate_schedule=schedule))
    assert scheduler.monitors == {"Loss"}
    seen = []
    for loss in [1.0, 1.0, 1.0, 1.0]:
        seen.append(torch_optimizer.param_groups[0]["lr"])
        torch_optimizer.step()
        scheduler.step()
        scheduler.observe(loss=loss)
    assert seen == pytest.approx([1.0, 1.5, 2.0, 0.2])


@given(stop=st.integers(0, 12), losses=st.lists(st.floats(0, 1), min_size=12, max_size=12))
def test_a_schedule_taken_up_again_goes_on_as_if_never_stopped(stop, losses):
    optimizer = SGD(
        0.5,
        learningrate_schedule=SequentialSchedule(1)
        .add(Warmup(0.1), 3)
        .add(Plateau("Loss", patience=1, cooldown=1), 6)
        .add(Step(2, 0.1), 3),
    )

    def go(torch_optimizer, scheduler, some):
        for loss in some:
            torch_optimizer.step()
            scheduler.step()
            scheduler.observe(loss=loss)
            yield torch_optimizer.param_groups[0]["lr"]

    whole = list(go(*followed(optimizer), losses))
    torch_optimizer, scheduler = followed(optimizer)
    first = list(go(torch_optimizer, scheduler, losses[:stop]))
    file = io.BytesIO()
    torch.save([torch_optimizer.state_dict(), scheduler.state_dict()], file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    other_optimizer, other = followed(pickle.loads(pickle.dumps(optimizer)))
    other_optimizer.load_state_dict(saved[0])
    other.load_state_dict(saved[1])
    assert first + list(go(other_optimizer, other, losses[stop:])) == whole


def test_groups_keep_their_own_rates():
    optimizer = SGD(0.5, learningrate_schedule=Step(1, 0.1))
    torch_optimizer = optimizer.torch_optimizer(
        [{"params": [torch.nn.Parameter(torch.ones(1))]}, {"params": [torch.nn.Parameter(torch.ones(1))], "lr": 2.0}]
    )
    scheduler = optimizer.torch_scheduler(torch_optimizer)
    torch_optimizer.step()
    scheduler.step()
    assert [group["lr"] for group in torch_optimizer.param_groups] == pytest.approx([0.05, 0.2])
