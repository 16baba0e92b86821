"""Learning rate schedules with BigDL's rules, a rate for every iteration.

A schedule only describes. What it must remember is a dict of plain data that whoever follows it keeps, so that it goes
into checkpoints; on a worker that is `zoo.orca.learn.pytorch.schedules.ScheduleLR`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.names import public_names

MONITORS = ("Loss", "score")

#: What a schedule remembers: plain data, empty at the start.
Memory = dict[str, Any]


class Scheduler(ABC):
    """A rule for the learning rate."""

    @abstractmethod
    def rate(self, start: float, done: int, decay: float, memory: Memory) -> float:
        """The learning rate of the next iteration.

        Args:
            start: the optimizer's learning rate.
            done: iterations done.
            decay: the optimizer's learningrate_decay.
            memory: what `observe` noted.
        """

    @property
    def monitors(self) -> set[str]:
        """What `observe` needs at the end of epochs: "Loss", "score", both or nothing."""
        return set()

    def observe(self, values: dict[str, float], done: int, memory: Memory) -> None:  # noqa: B027 - few look
        """Note, at the end of an epoch, the values of "Loss" and "score" as far as they are known."""

    def get_scheduler(self) -> Scheduler:
        """The schedule that training follows: this one, which `bigdl.optim.optimizer` offers under the same name."""
        return self

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__}({arguments})"


class Default(Scheduler):
    """The rate divided by 1 + iteration * learningrate_decay."""

    def rate(self, start: float, done: int, decay: float, memory: Memory) -> float:
        return start / (1 + done * decay)


class Poly(Scheduler):
    """The rate times (1 - iteration / max_iteration) ** power, and 0 from max_iteration on."""

    def __init__(self, power: float, max_iteration: int) -> None:
        self.power = power
        self.max_iteration = _positive("max_iteration", max_iteration)

    def rate(self, start: float, done: int, decay: float, memory: Memory) -> float:
        if done >= self.max_iteration:
            return 0.0
        return start * (1 - done / self.max_iteration) ** self.power


class Exponential(Scheduler):
    """The rate times decay_rate ** (iteration / decay_step), in whole steps if stair_case."""

    def __init__(self, decay_step: int, decay_rate: float, stair_case: bool = False) -> None:
        self.decay_step = _positive("decay_step", decay_step)
        self.decay_rate = decay_rate
        self.stair_case = stair_case

    def rate(self, start: float, done: int, decay: float, memory: Memory) -> float:
        steps = done // self.decay_step if self.stair_case else done / self.decay_step
        return start * self.decay_rate**steps


class Step(Scheduler):
    """The rate times gamma after each step_size iterations."""

    def __init__(self, step_size: int, gamma: float) -> None:
        self.step_size = _positive("step_size", step_size)
        self.gamma = gamma

    def rate(self, start: float, done: int, decay: float, memory: Memory) -> float:
        return start * self.gamma ** (done // self.step_size)


class MultiStep(Scheduler):
    """The rate times gamma at each of the iterations of step_sizes."""

    def __init__(self, step_sizes: Sequence[int], gamma: float) -> None:
        self.step_sizes = [_positive("step_sizes", each) for each in step_sizes]
        self.gamma = gamma

    def rate(self, start: float, done: int, decay: float, memory: Memory) -> float:
        return start * self.gamma ** sum(done >= each for each in self.step_sizes)


class Warmup(Scheduler):
    """The rate plus delta for each iteration; followed by something else in a SequentialSchedule."""

    def __init__(self, delta: float) -> None:
        self.delta = delta

    def rate(self, start: float, done: int, decay: float, memory: Memory) -> float:
        return start + self.delta * done


class Plateau(Scheduler):
    """The rate times factor whenever a value has not improved by epsilon for `patience` epochs.

    Args:
        monitor: "Loss" (the training loss) or "score" (the first metric of the validation data).
        mode: "min" if smaller is better, "max" if larger is.
        cooldown: epochs after a change in which nothing is counted.
        min_lr: no rate below this one.
    """

    def __init__(
        self,
        monitor: str,
        factor: float = 0.1,
        patience: int = 10,
        mode: str = "min",
        epsilon: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0.0,
    ) -> None:
        if monitor not in MONITORS:
            raise InvalidArgumentError(f"Expected monitor to be 'Loss' or 'score', got {monitor!r}")
        if mode not in ("min", "max"):
            raise InvalidArgumentError(f"Expected mode to be 'min' or 'max', got {mode!r}")
        if not 0 < factor < 1:
            raise InvalidArgumentError(f"Expected factor to be between 0 and 1, got {factor!r}")
        self.monitor = monitor
        self.factor = factor
        self.patience = patience
        self.mode = mode
        self.epsilon = epsilon
        self.cooldown = cooldown
        self.min_lr = min_lr

    @property
    def monitors(self) -> set[str]:
        return {self.monitor}

    def rate(self, start: float, done: int, decay: float, memory: Memory) -> float:
        return max(start * memory.get("scale", 1.0), min(self.min_lr, start))

    def observe(self, values: dict[str, float], done: int, memory: Memory) -> None:
        if self.monitor not in values:
            return
        value = float(values[self.monitor])
        cooling = max(0, memory.get("cooling", 0) - 1)
        waited = 0 if cooling else memory.get("waited", 0)
        if self._is_better(value, memory.get("best")):
            memory["best"] = value
            waited = 0
        elif not cooling:
            waited += 1
            if waited >= self.patience:
                memory["scale"] = memory.get("scale", 1.0) * self.factor
                cooling, waited = self.cooldown, 0
        memory.update(cooling=cooling, waited=waited)

    def _is_better(self, value: float, best: float | None) -> bool:
        if best is None:
            return True
        return value < best - self.epsilon if self.mode == "min" else value > best + self.epsilon


class SequentialSchedule(Scheduler):
    """One schedule after another, each for its iterations and from the rate that the one before it has reached.

    >>> SequentialSchedule(1).add(Warmup(0.1), 9).add(Step(100, 0.5), 1000).rate(0.1, 9, 0.0, {})
    1.0
    """

    def __init__(self, iteration_per_epoch: int) -> None:
        self.iteration_per_epoch = _positive("iteration_per_epoch", iteration_per_epoch)
        self._stages: list[tuple[Scheduler, int]] = []

    def add(self, scheduler: Scheduler, max_iteration: int) -> SequentialSchedule:
        """Follow another schedule for so many iterations; the last one is followed for as long as training goes on."""
        if not isinstance(scheduler, Scheduler):
            raise InvalidArgumentError(f"Expected a schedule such as Warmup(0.1), got {scheduler!r}")
        self._stages.append((scheduler, _positive("max_iteration", max_iteration)))
        return self

    @property
    def monitors(self) -> set[str]:
        return {name for scheduler, _ in self._stages for name in scheduler.monitors}

    def rate(self, start: float, done: int, decay: float, memory: Memory) -> float:
        current, done_in_it = self._at(done)
        for number, (scheduler, iterations) in enumerate(self._stages[:current]):
            start = scheduler.rate(start, iterations, decay, _memory_of(number, memory))
        if not self._stages:
            return start
        return self._stages[current][0].rate(start, done_in_it, decay, _memory_of(current, memory))

    def observe(self, values: dict[str, float], done: int, memory: Memory) -> None:
        if self._stages:
            current, done_in_it = self._at(done)
            self._stages[current][0].observe(values, done_in_it, _memory_of(current, memory))

    def _at(self, done: int) -> tuple[int, int]:
        """The number of the schedule that is followed now, and the iterations done under it."""
        for number, (_, iterations) in enumerate(self._stages[:-1]):
            if done < iterations:
                return number, done
            done -= iterations
        return max(0, len(self._stages) - 1), done

    def __repr__(self) -> str:
        added = "".join(f".add({scheduler!r}, {iterations})" for scheduler, iterations in self._stages)
        return f"SequentialSchedule({self.iteration_per_epoch}){added}"


def _memory_of(number: int, memory: Memory) -> Memory:
    """What one of several schedules remembers."""
    return memory.setdefault(str(number), {})


def _positive(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidArgumentError(f"Expected {name} to be a whole number above 0, got {value!r}")
    return value


__dir__ = public_names(globals())
