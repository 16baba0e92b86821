"""MXNet as a learner: one replica on a worker, which trains with the others, measures and gives its state."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.orca import mxnet_library as library
from zoo.orca.learn.learner import Learner
from zoo.orca.learn.mxnet.arrays import copied, split, to_array, to_tensor
from zoo.orca.learn.mxnet.gluon_net import GluonNet
from zoo.orca.learn.mxnet.measures import Measures
from zoo.orca.learn.mxnet.module_net import ModuleNet
from zoo.orca.learn.mxnet.optimizer_state import (
    first_rate,
    load_optimizer,
    load_scheduler,
    pack_optimizer,
    pack_scheduler,
    rate_of,
)
from zoo.orca.learn.mxnet.recipe import MXNetRecipe, is_block
from zoo.orca.learn.summed import RowMean

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker
    from zoo.orca.feed.base import Share
    from zoo.orca.learn.mxnet.net import Net
    from zoo.orca.learn.sync import Group

logger = logging.getLogger("zoo.orca")


class MXNetLearner(Learner):
    """One rank's model. Each rank goes forward and backward; gradients are summed, and each updates its replica."""

    def __init__(self, recipe: MXNetRecipe, worker: Worker, group: Group, state: dict[str, Any] | None):
        self.recipe = recipe
        self.rank = worker.rank
        self.group = group
        self._mx = library.load()
        self._state = state
        model = recipe.build_model()
        self.net: Net = GluonNet(model, recipe) if is_block(model) else ModuleNet(model, recipe, group.world_size)
        self._measures = Measures(recipe.build_metrics(validation=False))
        self._is_built = self._has_own_buffers = False
        self._inputs: Any = None
        self._share: Share | None = None
        self._loss: float | None = None
        self._train_loss = np.zeros(2)
        self._measured = RowMean()
        self._epoch = self._batch = self._rows = 0
        self._started = time.perf_counter()
        self._waiting_local: dict[str, Any] | None = None

    def _build_for(self, share: Share) -> None:
        """The first batch tells the shapes of parameters; then all ranks take the state's weights, or rank 0's."""
        if self._is_built:
            return
        features, target = split(share.batch)
        self.net.build(features, target)
        self._inputs = _described(features, target)
        if self._state is not None:
            self._load(self._state)
            self._state = None
        else:
            self._broadcast()
        self._is_built = True
        if self._waiting_local is not None:
            self._put_local(self._waiting_local)
            self._waiting_local = None

    def _broadcast(self) -> None:
        """Rank 0's first weights for all, those of one type in one buffer."""
        if self.group.world_size == 1:
            return
        by_type: dict[Any, list[Any]] = {}
        for array in self.net.parameters().values():
            by_type.setdefault(np.dtype(array.dtype), []).append(array)
        for arrays in by_type.values():
            flat = np.concatenate([array.asnumpy().ravel() for array in arrays])
            self.group.broadcast(flat)
            _spread(flat, arrays)

    def _load(self, state: dict[str, Any]) -> None:
        (weights,) = state["models"]
        self.net.load({name: to_array(tensor) for name, tensor in weights.items()})
        for packed in state.get("optimizers") or []:
            load_optimizer(self.net, packed)
        for numbers in state.get("schedulers") or []:
            load_scheduler(self.net, numbers)
        self._loss = (state.get("operator") or {}).get("loss")

    def start_epoch(self, epoch: int) -> None:
        self._epoch = epoch
        self._rows = 0
        self._train_loss = np.zeros(2)
        self._has_own_buffers = True
        self._measures.reset()
        self._started = time.perf_counter()

    def take(self, share: Share, last: bool = False) -> Share:
        self._build_for(share)
        self._share = share
        self._rows += share.rows
        return share

    def train_epoch(self, batches: Iterable[Any], info: dict[str, Any]) -> dict[str, Any]:
        self._batch = getattr(batches, "first", 0)
        for share in batches:
            with self._nothing_of_a_ghost(share):
                self._step(share)
            self._batch += 1
            self._tell()
        self._share = None
        self._mx.nd.waitall()
        return {"epoch_time": time.perf_counter() - self._started} | self.so_far()

    def _step(self, share: Share) -> None:
        self._seed()
        features, target = split(share.batch)
        outputs, labels, loss = self.net.train(features, target, _length(features))
        if self.group.world_size > 1:
            loss = self._sum(share, loss)
        self.net.update(share.total)
        self._measures.update(labels, outputs, share.rows)
        if loss is not None:
            # Waits for the sum of losses alone: the update goes on meanwhile.
            self._loss = float(loss.asscalar()) / share.total
            self._train_loss += (self._loss * share.total, share.total)

    def _sum(self, share: Share, loss: Any) -> Any:
        """Let the gradients be those of all ranks' rows; the loss goes before them, and is all that is waited for."""
        arrays = self.net.contributions(share.rows, share.total)
        if loss is not None and not share.rows:
            loss = self._mx.nd.zeros((1,))
        self.group.sum_arrays(arrays, loss)  # type: ignore[attr-defined]  # of KVStoreGroup, which several ranks have
        self.net.take_sums()
        return loss

    def _seed(self) -> None:
        """Random numbers that follow from the place in training, so that it can be taken up anywhere."""
        if self.net.draws:
            place = np.random.SeedSequence([self.recipe.seed, self._epoch, self._batch, self.rank])
            self._mx.random.seed(int(place.generate_state(1)[0] >> 1), ctx=self._mx.cpu())

    @contextlib.contextmanager
    def _nothing_of_a_ghost(self, share: Share) -> Iterator[None]:
        """Rows that count for nothing leave no trace in statistics."""
        before = [] if share.rows else [(each, each.copy()) for each in self.net.buffers()]
        yield
        for array, value in before:
            array[:] = value

    def _tell(self) -> None:
        """A line in the log every so many batches, as MXNet's users know it."""
        interval = self.recipe.log_interval
        if self.rank or not interval or self._batch % interval or not logger.isEnabledFor(logging.INFO):
            return
        speed = self._rows / max(time.perf_counter() - self._started, 1e-9)
        named = ({} if self._loss is None else {"loss": self._loss}) | self._measures.figures()
        figures = ", ".join(f"{name} {value:.4g}" for name, value in named.items())
        logger.info("epoch %d, batch %d: %.1f rows/s, %s", self._epoch + 1, self._batch, speed, figures)

    def after_step(self) -> None:
        """The rate of the next step is the optimizer's own business: it counts its updates."""

    def after_epoch(self, rows: int, loss: float | None, score: float | None) -> None:
        self._average_buffers()
        self._has_own_buffers = False

    def validate(self, shares: Iterable[Share], info: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        metric = self.recipe.build_metrics(validation=True)
        measures = Measures(self.recipe.build_metrics(validation=False) if metric is None else metric)
        self._measured, rows = RowMean(), 0
        with self._agreed_buffers():
            for share in shares:
                self._build_for(share)
                if share.rows:
                    self._measure(share, measures)
                rows += share.rows
        has_loss = isinstance(self.net, GluonNet)
        return {"num_samples": rows}, measures.taken() | ({"val_loss": self._measured} if has_loss else {})

    def measured_loss(self) -> float | None:
        return self._measured.value() if isinstance(self.net, GluonNet) else None

    def _measure(self, share: Share, measures: Measures) -> None:
        features, target = split(share.batch)
        outputs, labels, loss = self.net.forward(features, target, _length(features))
        measures.update(labels, outputs, share.rows)
        if loss is not None:
            self._measured.add(float(loss.asscalar()) / share.rows, share.rows)

    @property
    def loss(self) -> float | None:
        return self._loss

    @property
    def rate(self) -> float:
        return rate_of(self.net.optimizer) if self._is_built else first_rate(self.recipe, self._state)

    @property
    def native(self) -> Any:
        return self.net.native

    def profile(self) -> dict[str, Any]:
        return {}

    def so_far(self) -> dict[str, Any]:
        figures: dict[str, Any] = {}
        sums = self._train_loss.copy()
        if self.group.world_size > 1:
            self.group.broadcast(sums)  # the same on all ranks, unless a gang of another size took up the epoch
        if sums[1]:
            figures["train_loss"] = float(sums[0] / sums[1])
        return figures | (self._measures.over_ranks(self.group) if self._measures else {})

    def state(self) -> dict[str, Any]:
        if not self._is_built and self._state is not None:  # no batch was asked for: it is what it was
            return {name: self._state.get(name) for name in ("models", "optimizers", "schedulers", "operator")}
        with self._agreed_buffers():
            weights = {name: to_tensor(array) for name, array in self.net.parameters().items()}
        return {
            "models": [weights],
            "optimizers": [pack_optimizer(self.net)],
            "schedulers": [pack_scheduler(self.net)],
            "operator": {"loss": self._loss, "inputs": self._inputs},
        }

    def local_state(self) -> dict[str, Any]:
        return {
            "buffers": [to_tensor(each) for each in self.net.buffers()],
            "measures": self._measures.state(),
            "train_loss": self._train_loss.tolist(),
            "rows": self._rows,
        }

    def load_local(self, state: dict[str, Any], within_epoch: bool) -> None:
        if within_epoch:
            self._rows = state["rows"]
            self._measures.load(state["measures"])
            self._train_loss = np.array(state["train_loss"])
        if self._is_built:
            self._put_local(state)
        else:
            self._waiting_local = state

    def _put_local(self, state: dict[str, Any]) -> None:
        for array, value in zip(self.net.buffers(), state["buffers"], strict=True):
            array[:] = to_array(value)

    def load_figures(self, states: list[dict[str, Any]]) -> None:
        for state in states:
            self._measures.add([state["measures"]])
            self._train_loss = np.array(state["train_loss"])  # which each of them had of all

    def digest(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for tensor in self.state()["models"][0].values():
            digest.update(tensor.numpy().tobytes())
        return digest.hexdigest()

    def close(self) -> None:
        self._mx.nd.waitall()

    def _average_buffers(self) -> None:
        buffers = self.net.buffers()
        if self.group.world_size == 1 or not buffers:
            return
        parts = [each.asnumpy().astype(np.float64).ravel() * self._rows for each in buffers]
        flat = np.concatenate([*parts, [float(self._rows)]])
        self.group.all_reduce(flat)
        if flat[-1]:
            _spread(flat[:-1] / flat[-1], buffers)

    @contextlib.contextmanager
    def _agreed_buffers(self) -> Iterator[None]:
        """In the middle of an epoch: the statistics that ranks would agree on now, and then this rank's own again.

        All ranks call it together."""
        if not self._has_own_buffers or self.group.world_size == 1:
            yield
            return
        own = [(each, each.copy()) for each in self.net.buffers()]
        self._average_buffers()
        try:
            yield
        finally:
            for array, value in own:
                array[:] = value


def _spread(flat: np.ndarray, arrays: list[Any]) -> None:
    """Parts of a flat buffer for arrays, one after the other."""
    place = 0
    for array in arrays:
        # Not from numpy's memory: weights of convolutions lie in an order of their own, which only MXNet can write.
        array[:] = copied(flat[place : place + array.size].reshape(array.shape), array.dtype)
        place += array.size


def _length(features: tuple[Any, ...]) -> int:
    first: Any = features
    while isinstance(first, list | tuple | dict):
        first = next(iter(first.values())) if isinstance(first, dict) else first[0]
    return first.shape[0]


def _described(features: Any, target: Any) -> dict[str, Any]:
    """What the model was built for, as plain data: the shapes of a row, and their types."""
    return {"features": _shapes(features), "target": _shapes(target)}


def _shapes(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _shapes(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_shapes(each) for each in value]
    return None if value is None else list(value.shape[1:])
