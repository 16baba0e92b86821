"""Every error this library raises: what was expected, what came, what to type next.

Each type is also the built-in that a user would catch, so old `except` lines keep working.
"""

from __future__ import annotations

from zoo.orca.names import public_names


def sentence(said: object) -> str:
    """What another library said, with a full stop so that ours can follow; an error has its type before it.

    >>> sentence(KeyError("label")), sentence("Out of range!")
    ("KeyError: 'label'.", 'Out of range!')
    """
    text = f"{type(said).__name__}: {said}" if isinstance(said, BaseException) else str(said)
    text = text.rstrip().removesuffix(":")
    return text if text.endswith((".", "!", "?")) else f"{text}."


class OrcaError(Exception):
    """The root of all errors raised by this library."""


class InvalidArgumentError(OrcaError, ValueError):
    """An argument has a value that cannot work."""


class BatchError(InvalidArgumentError, IndexError, RuntimeError):
    """The model or the loss cannot take a batch: a shape, a type, or labels out of range.

    It is also what torch itself raises for those.
    """


class PreconditionError(InvalidArgumentError, AssertionError):
    """An argument breaks a rule that the published interface checks with an assertion."""


class ShardTypeError(OrcaError, TypeError):
    """An operation was asked of shards that do not have it."""


class InvalidKeyError(OrcaError, KeyError):
    """A column or key is not in the shard."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class PathNotFoundError(OrcaError, FileNotFoundError):
    """A path to read from does not exist."""


class PathExistsError(OrcaError, FileExistsError):
    """A path to write to exists already, and overwriting it was not asked for."""


class NotOfferedError(OrcaError, NotImplementedError):
    """A name of the published interface that has nothing behind it; the message says what to use instead."""


class MissingPackageError(OrcaError, ImportError):
    """An optional package is not installed; the message holds the line to type."""


class ContextError(OrcaError, RuntimeError):
    """No context is active, or it cannot be started or changed as asked."""


class NotEnoughSlotsError(OrcaError, RuntimeError):
    """More workers were asked for than the engine can run at once."""


class DynamicAllocationError(OrcaError, RuntimeError):
    """Spark's dynamic allocation is on, and a gang cannot run beside it."""


class NotPicklableError(OrcaError, TypeError):
    """A function or object cannot be sent to the workers."""


class WorkerError(OrcaError, RuntimeError):
    """What a worker raised, with its rank, its step and its own traceback.

    It is the cause (`__cause__`) of the exception that reaches the caller, which has the type that the worker
    raised. It is raised itself only when that exception cannot be brought over.
    """

    def __init__(self, message: str, rank: int | None = None, step: int | None = None, remote_traceback: str = ""):
        super().__init__(message)
        self.rank = rank
        self.step = step
        self.remote_traceback = remote_traceback

    def __reduce__(self):
        return type(self), (self.args[0], self.rank, self.step, self.remote_traceback)


class WorkerLostError(OrcaError, RuntimeError):
    """A worker's process, executor or node went away without raising anything."""

    def __init__(self, message: str, ranks: tuple[int, ...] = ()):
        super().__init__(message)
        self.ranks = ranks

    def __reduce__(self):
        return type(self), (self.args[0], self.ranks)


class ShardsLostError(WorkerLostError):
    """Shards went with the process that kept them, again and again while they were computed anew."""


class ReplicasDifferError(OrcaError, RuntimeError):
    """Ranks ended with different weights, though every step is taken by all of them together."""


class CheckpointError(InvalidArgumentError):
    """A file to load is damaged, or was written for another model."""


class GangStalledError(OrcaError, TimeoutError):
    """Workers said nothing for too long; `stacks` holds every rank's Python stack."""

    def __init__(self, message: str, ranks: tuple[int, ...] = (), stacks: dict[int, str] | None = None):
        super().__init__(message)
        self.ranks = ranks
        self.stacks = stacks or {}

    def __reduce__(self):
        return type(self), (self.args[0], self.ranks, self.stacks)


class VersionMismatchError(OrcaError, RuntimeError):
    """A worker has another version of Python or of a package than the driver, and the two cannot work together."""


class NotEnoughMemoryError(OrcaError, MemoryError):
    """Training needs more memory than a worker has."""


class NotFiniteLossError(OrcaError, ArithmeticError):
    """The loss over all workers is NaN or inf, and `stop_on_nan` was asked for; the weights are those before it."""

    def __init__(self, loss: float, iteration: int, epoch: int, batch: int):
        super().__init__(
            f"the loss of step {iteration} (batch {batch} of epoch {epoch}) is {loss}, and the weights were left as "
            "they were before it. Look for NaN or inf in the data of that batch; try a smaller learning rate, "
            'clip_norm=1.0, or precision="bf16" (or "fp32") instead of "fp16".'
        )
        self.loss = loss
        self.iteration = iteration
        self.epoch = epoch
        self.batch = batch

    def __reduce__(self):
        return type(self), (self.loss, self.iteration, self.epoch, self.batch), vars(self)


class StrangerError(OrcaError, ConnectionError):
    """Somebody who is no worker connected to the workers while they connected to each other, again and again."""


class UnknownArgumentError(InvalidArgumentError, TypeError):
    """A call has an argument that is not known, or lacks one; the message has the spelling that was meant."""


class ModelFileMissingError(PathNotFoundError, AssertionError):
    """A file of a model is not there, or not both of the two that belong together."""


class ModelFileError(InvalidArgumentError, RuntimeError):
    """A file is no model, is damaged, or holds a model that cannot be made ready as asked."""


class ExportMismatchError(OrcaError, ArithmeticError):
    """A model that was written predicts something else than the estimator; its file was not kept."""


__dir__ = public_names(globals())
