"""What becomes of an optimizer's `step` in a gang: one update over all ranks' gradients, made by every rank."""

from __future__ import annotations

import copy
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import optim

from zoo.orca.errors import InvalidArgumentError, PreconditionError
from zoo.orca.learn.pytorch.buckets import Bucket, is_dense
from zoo.orca.learn.pytorch.held import Held
from zoo.orca.learn.pytorch.tensors import snapshot

if TYPE_CHECKING:
    from zoo.orca.learn.pytorch.replica import Replica
    from zoo.orca.learn.sync.base import Group

# They treat every element alike and alone, so that a slice of a tensor is updated as it would be within the whole.
ELEMENTWISE = {
    optim.ASGD,
    optim.Adadelta,
    optim.Adagrad,
    optim.Adam,
    optim.AdamW,
    optim.Adamax,
    optim.NAdam,
    optim.RAdam,
    optim.RMSprop,
    optim.Rprop,
    optim.SGD,
}
# Weights of ranks are fractions of the rows: their sum is 1 but for rounding.
ROUNDING = 1e-6


def can_be_sharded(optimizer: optim.Optimizer) -> bool:
    """Whether each rank may update a slice on its own. A class of one's own says so with `elementwise = True`."""
    return is_elementwise(optimizer) and all(
        is_dense(param) and not param.is_complex() for param in params_of(optimizer)
    )


def is_elementwise(optimizer: optim.Optimizer) -> bool:
    """Whether the optimizer treats every element alike and alone, and evaluates a closure once, at its start."""
    return type(optimizer) in ELEMENTWISE or getattr(type(optimizer), "elementwise", False)


def params_of(optimizer: optim.Optimizer) -> list[torch.Tensor]:
    """All parameters, numbered as in the optimizer's state_dict."""
    return [param for group in optimizer.param_groups for param in group["params"]]


class ReplicatedUpdate:
    """Every rank makes the whole step on the combined gradients."""

    def __init__(self, replica: Replica, optimizer: optim.Optimizer):
        # No cycles from here to the buffers: memory goes with the last reference, not when the collector comes by.
        self.replica = weakref.proxy(replica)
        self.group: Group = replica.group
        self.optimizer = optimizer
        self.held = Held()
        self._own_step: Callable[..., Any] = optimizer.step
        self._lay_out()
        self._take_over()

    def _take_over(self) -> None:
        update = weakref.ref(self)

        def step(_: optim.Optimizer, closure: Callable[[], Any] | None = None) -> Any:
            mine = update()
            if mine is None:
                # A step of this rank alone would let the replicas drift apart without a word.
                raise PreconditionError("this optimizer's gang is over: make a new optimizer, or keep its Replica.")
            return mine.step(closure)

        # A method, since torch's schedulers wrap `step.__func__`.
        self.optimizer.step = types.MethodType(step, weakref.proxy(self.optimizer))

    def close(self) -> None:
        """Give up the gradients, which are views of the group's memory."""
        self.held.clear()
        for param in self._params:
            param.grad = None

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        self._check_layout()
        if closure is not None and not is_elementwise(self.optimizer):
            return self._step_with(closure)
        loss = self.replica.loss
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        combined = self._hold(loss) if self.replica.holds else self._step_on(loss)
        return None if closure is None else combined

    def _hold(self, loss: Any) -> Any:
        """Keep the gradients for a later step."""
        self.held.add(self._params, float(self.replica.weight), loss)
        self.replica.withheld = True
        return loss

    def _step_on(self, loss: Any) -> Any:
        """Make the step on the gradients of all ranks, if they are numbers; gives the loss over all ranks."""
        if self._combine(loss):
            self._apply()
            self.replica.stepped = True
        else:
            self.replica.overflowed = self.replica.withheld = True
        return _like(loss, self.replica.global_loss)

    def _step_with(self, closure: Callable[[], Any]) -> Any:
        """Optimizers such as LBFGS ask for the loss and its gradients as often as they like."""
        if self.replica.holds or self.replica.scale is not None:
            raise InvalidArgumentError(
                f"{type(self.optimizer).__name__} evaluates the loss several times in a step, which goes neither with "
                'accumulate nor with precision="fp16". Leave them out, or use another optimizer, such as Adam.'
            )

        def over_all_ranks() -> Any:
            loss = closure()
            self._combine(loss)
            return _like(loss, self.replica.global_loss)

        self.replica.stepped = True
        return self._own_step(over_all_ranks)

    def _apply(self) -> None:
        """Make the step, with the gradients that are combined now."""
        self._own_step()

    def state(self) -> dict[str, Any]:
        """The optimizer's state_dict, in memory of its own."""
        return snapshot(self.optimizer.state_dict())

    def load(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(copy.deepcopy(state))

    def _lay_out(self) -> None:
        self._params = params_of(self.optimizer)
        self._buckets = _make_buckets(self.group, self._params)
        self._signature = self._sign()

    def _sign(self) -> Any:
        """What the layout was made for."""
        return [id(param) for param in params_of(self.optimizer)]

    def _check_layout(self) -> None:
        """Parameter groups may have been added."""
        if self._sign() != self._signature:
            self._lay_out()

    @torch.no_grad()
    def held_over_ranks(self) -> dict[str, Any]:
        """The gradients that wait on all ranks, as if they waited on one. All ranks call it together."""
        if self.group.world_size == 1:
            return self.held.state()
        before = [(bucket, bucket.flat.clone()) for bucket in self._buckets if bucket.is_needed()]
        total = Held()
        needed = self._send(None, weight=0.0)
        for bucket in needed:
            self.group.all_reduce(bucket.flat)
        *numbers, total.weight, total.loss, _ = self._buckets[0].tail.tolist()
        for bucket in needed:
            found = zip(bucket.indices, bucket.views, strict=True)
            total.gradients |= {index: view.clone() for index, view in found if numbers[index] > 0}
        for bucket, flat in before:
            bucket.flat.copy_(flat)
        return total.state()

    @torch.no_grad()
    def _combine(self, loss: Any) -> bool:
        """Make the gradients the combined ones; False where they are no numbers and the step is to be skipped."""
        if self.group.world_size == 1:
            return self._keep_own(loss)
        needed = self._send(loss, float(self.replica.weight))
        for bucket in needed:
            self.group.all_reduce(bucket.flat)
        divisor, has_gradient, are_numbers = self._receive(loss)
        if not are_numbers:
            return False
        flats = [bucket.flat[: bucket.length] for bucket in needed]
        scale_to_mean(flats, divisor)
        clip_to(flats, self.replica.clip)
        for bucket in needed:
            bucket.hand_out(has_gradient)
        if type(self.optimizer) is optim.SparseAdam:
            self._make_sparse()
        return True

    def _keep_own(self, loss: Any) -> bool:
        """The undistributed case: what would be summed is what is there."""
        weight, held = float(self.replica.weight), self.held
        if held.weight > 0:
            self._add_held(weight, loss)
        else:
            self.replica.hear_loss(float(loss) if weight > 0 and loss is not None else None)
            for param in self._params:
                if weight <= 0:
                    param.grad = None
                elif self.replica.clip and param.grad is not None and param.grad.layout is not torch.strided:
                    param.grad = param.grad.to_dense()
        gradients = [param.grad for param in self._params if param.grad is not None]
        if self.replica.scale is not None and not _are_finite(gradients):
            return False
        clip_to(gradients, self.replica.clip)
        return True

    def _add_held(self, weight: float, loss: Any) -> None:
        """Make the gradients those of all batches of the step."""
        self.held.add(self._params, weight, loss)
        held = self.held
        divisor = held.weight if self.replica.is_mean else 1.0
        for index, param in enumerate(self._params):
            gradient = held.gradients.get(index)
            param.grad = None if gradient is None else gradient.div_(divisor).to(param.dtype)
        if type(self.optimizer) is optim.SparseAdam:
            self._make_sparse()
        self.replica.hear_loss(None if loss is None else held.loss / divisor)
        held.clear()

    def _send(self, loss: Any, weight: float) -> list[Bucket]:
        """Fill the buckets that take part in this step; the first one always does, for it carries the small numbers."""
        held = self.held
        first, *rest = self._buckets
        needed = [first, *(bucket for bucket in rest if bucket.is_needed())]
        for bucket in needed:
            bucket.fill(weight, held.gradients)
        numbers = [
            float((weight > 0 and param.grad is not None) or index in held.gradients)
            for index, param in enumerate(self._params)
        ]
        weighted_loss = weight * float(loss) if weight > 0 and loss is not None else 0.0
        # Every rank hears whether another one's gradients are no numbers, though it may see only a slice of the sum.
        flats = [bucket.flat[: bucket.length] for bucket in needed]
        is_broken = self.replica.scale is not None and not _are_finite(flats)
        if is_broken:
            for flat in flats:
                flat.zero_()
        sums = [weight + held.weight, weighted_loss + held.loss, float(is_broken)]
        first.tail.copy_(torch.tensor([*numbers, *sums], dtype=first.flat.dtype))
        return needed

    def _receive(self, loss: Any) -> tuple[float, list[bool], bool]:
        """What sums are to be divided by, which parameters have a gradient, and whether all of them are numbers."""
        self.held.clear()
        *numbers, total, weighted_loss, broken = self._buckets[0].tail.tolist()
        divisor = total if self.replica.is_mean else 1.0
        self.replica.hear_loss(weighted_loss / divisor if total > 0 and loss is not None else None)
        return divisor, [number > 0 for number in numbers], broken == 0

    def _make_sparse(self) -> None:
        for param in self._params:
            if param.grad is not None:
                param.grad = param.grad.to_sparse(1)


def _make_buckets(group: Group, params: list[torch.Tensor]) -> list[Bucket]:
    """One for each dtype; parameters that are frozen now lie apart, so that they cost nothing while they are."""
    kinds: dict[tuple[bool, torch.dtype], list[tuple[int, torch.Tensor]]] = {}
    for index, param in enumerate(params):
        kinds.setdefault((not param.requires_grad, param.dtype), []).append((index, param))
    if all(is_frozen for is_frozen, _ in kinds):
        kinds[False, torch.float32] = []
    ordered = sorted(kinds.items(), key=lambda item: item[0][0])
    # For each parameter whether it has a gradient, then the weight, the weighted loss, and how many are no numbers.
    return [
        Bucket(group, dtype, members, len(params) + 3 if number == 0 else 0)
        for number, ((_, dtype), members) in enumerate(ordered)
    ]


def scale_to_mean(flats: list[torch.Tensor], divisor: float) -> None:
    """Divide sums, if that changes anything."""
    if divisor > 0 and abs(divisor - 1) > ROUNDING:
        for flat in flats:
            flat.mul_(1 / divisor)


def _are_finite(tensors: list[torch.Tensor]) -> bool:
    dense = (each if each.layout is torch.strided else each.coalesce().values() for each in tensors)
    answers = [torch.isfinite(each).all() for each in dense]
    return not answers or bool(torch.stack(answers).all())  # one question, for a GPU would be waited for at each


def clip_to(
    tensors: list[torch.Tensor], clip: tuple[Any, ...] | None, over_ranks: Callable[[float], float] | None = None
) -> None:
    """Clip combined gradients: ("value", low, high) each element, ("norm", most) all of them together, or one after
    the other: ("both", low, high, most)."""
    if clip is None:
        return
    if clip[0] == "both":
        *value, most = clip[1:]
        clip_to(tensors, ("value", *value))
        clip_to(tensors, ("norm", most), over_ranks)
        return
    if clip[0] == "value":
        for tensor in tensors:
            tensor.clamp_(*clip[1:])
        return
    norms = [torch.linalg.vector_norm(tensor).double() for tensor in tensors]
    norm = float(torch.linalg.vector_norm(torch.stack(norms))) if norms else 0.0
    factor = clip[1] / ((over_ranks(norm) if over_ranks else norm) + 1e-6)
    if not factor >= 1:  # a norm that is not a number must be seen in the weights, as it would be without us
        for tensor in tensors:
            tensor.mul_(factor)


def _like(loss: Any, value: float | None) -> Any:
    """The combined loss in the form of this rank's."""
    if value is None:
        return loss
    return torch.full_like(loss.detach(), value) if torch.is_tensor(loss) else value
