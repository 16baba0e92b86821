"""`est.check`: all that can be found out in seconds about a fit, before any time of a cluster is spent."""

from __future__ import annotations

import contextlib
import dataclasses
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from zoo.orca.context import current_engine
from zoo.orca.engine.pickling import dumps
from zoo.orca.errors import NotPicklableError, OrcaError
from zoo.orca.feed import check_same_kind, engine_of, kind_of
from zoo.orca.feed.plan import split
from zoo.orca.feed.rows import RowsFeed
from zoo.orca.feed.shards import Columns
from zoo.orca.feed.taste import Taste
from zoo.orca.learn.callbacks import Callback, Callbacks
from zoo.orca.learn.check_report import CheckReport, Finding, words_of
from zoo.orca.learn.rehearsal import Load, Rehearsal
from zoo.orca.learn.surroundings import Surroundings, ask_workers, compare_memory, compare_versions, versions

if TYPE_CHECKING:
    from zoo.orca.engine.base import Engine
    from zoo.orca.feed.base import Share
    from zoo.orca.learn.estimator import Estimator
    from zoo.orca.learn.learner import Learning


def preflight(
    estimator: Estimator,
    data: Any,
    batch_size: int | None,
    columns: Columns,
    validation_data: Any = None,
    callbacks: Any = None,
) -> CheckReport:
    """Look at everything that a fit with these arguments needs; nothing is changed and nothing stays."""
    findings = _find(estimator, data, batch_size, columns, validation_data, callbacks)
    for finding in findings:
        _let_go(finding.error)
    return CheckReport(findings)


def _find(
    estimator: Estimator, data: Any, batch_size: int | None, columns: Columns, validation_data: Any, callbacks: Any
) -> list[Finding]:
    check = _Preflight(estimator, columns)
    check.backend()
    check.workers(data)
    check.batch_size(data, batch_size)
    check.callbacks(callbacks, validation_data is not None)
    check.pickling()
    check.versions()
    check.data(data)
    check.validation_data(data, validation_data)
    check.model()
    check.memory()
    return check.findings


def _let_go(error: BaseException | None) -> None:
    """An error remembers where it was raised, but not the rows and models that were in hand there."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


class _Preflight:
    """The checks, in order: each uses what those before it found, and does without what they did not."""

    def __init__(self, estimator: Estimator, columns: Columns):
        self.findings: list[Finding] = []
        self._estimator = estimator
        self._columns = dataclasses.replace(columns, text=estimator._takes_text)
        self._rehearsal: Rehearsal = estimator._rehearsal()
        self._engine: Engine | None = None
        self._home: Engine | None = None  # of data that is of use
        self._workers: int | None = None
        self._batch_size = 1
        self._callbacks: list[Callback] = []
        self._learning: Learning | None = None
        self._around: list[Surroundings] = []
        self._batches: dict[str, tuple[Taste, Share]] = {}

    @contextlib.contextmanager
    def _noting(self, name: str) -> Iterator[None]:
        """What is raised in here is a finding, and the checks go on."""
        try:
            yield
        except Exception as error:
            self.findings.append(Finding.of(name, error))

    def _say(self, name: str, text: str) -> None:
        self.findings.append(Finding(name, "ok", text))

    def _warn(self, name: str, text: str, error: BaseException | None = None) -> None:
        self.findings.append(Finding(name, "warning", text, error))

    def backend(self) -> None:
        """The packages of the backend, and what training needs of the estimator."""
        gang = self._estimator._gang
        with self._noting("backend"):
            self._estimator._make_sync().check()
            self._say("backend", f"{gang.backend!r} has the packages that it needs")
        with self._noting("loss"):
            self._estimator._check_trainable()

    def workers(self, data: Any) -> None:
        """Where the gang will be, and whether there is room for it."""
        with self._noting("workers"):
            asked = self._estimator._gang.engine()
            with self._noting("data"):
                self._home = engine_of(data, asked)
            # Workers can be asked, though the data is of no use.
            engine = self._engine = self._home or asked or current_engine()
            least, most = self._estimator._gang.limits(engine)
            self._workers = engine.check_gang(most, least)
            if self._workers < most:
                self._warn("workers", f"there is room for {self._workers} of the {most} workers asked for")
            else:
                self._say("workers", f"{most} worker(s) can start together on the {engine.name} engine")

    def batch_size(self, data: Any, batch_size: int | None) -> None:
        with self._noting("batch_size"):
            if self._home is not None:
                workers = self._estimator._gang.limits(self._home)[1]
                self._batch_size = self._estimator._check_batch_size(data, batch_size, workers)

    def callbacks(self, callbacks: Any, validates: bool) -> None:
        with self._noting("callbacks"):
            called = Callbacks(callbacks)
            self._callbacks = [each for each in called if not each.on_driver]
            self._estimator._check_monitored(called, validates)

    def pickling(self) -> None:
        """Everything that is sent to the workers; what cannot be sent is named, part by part."""
        parts = self._rehearsal.parts()
        errors: list[BaseException] = []
        with self._noting("pickling"):
            try:
                self._learning = self._estimator._learning()
            except NotPicklableError as error:
                errors += [each for name, part in parts.items() if (each := _not_picklable(part, name))] or [error]
        errors += [each for each in [_not_picklable(self._callbacks, "callbacks")] if each]
        self.findings += [Finding.of("pickling", error) for error in errors]
        if not errors and self._learning is not None:
            names = [*parts, *(["callbacks"] if self._callbacks else [])]
            self._say("pickling", f"{', '.join(names) or 'everything'} can be sent to the workers")

    def versions(self) -> None:
        """Python and packages of the workers, asked of as many as there will be."""
        if self._engine is None or self._workers is None:
            self._warn("versions", "the workers were not asked, because they cannot be started")
            return
        packages = self._rehearsal.packages
        with self._noting("workers"):
            self._around = ask_workers(self._engine, self._workers, packages, self._rehearsal.room)
            self.findings += compare_versions(versions(packages), self._around, packages)

    def data(self, data: Any) -> None:
        """Columns, shapes and types, by a few rows."""
        if self._home is not None:
            self._taste("data", data, self._home)

    def validation_data(self, data: Any, validation_data: Any) -> None:
        if validation_data is None or self._home is None:
            return
        with self._noting("validation_data"):
            check_same_kind(data, validation_data)
            self._taste("validation_data", validation_data, self._home)

    def _taste(self, what: str, data: Any, engine: Engine) -> None:
        estimator = self._estimator
        try:
            tasted = estimator._taste(data, self._columns, engine, what)
            share = tasted.share(self._batch_size, estimator._seed)
            self._batches[what] = tasted, share
            self._say(what, tasted.describe(share))
        except Exception as error:
            if kind_of(data) == "creator" and not engine.one_machine and not isinstance(error, OrcaError):
                self._warn(what, f"its creator cannot be called on the driver ({words_of(error)})", error)
            else:
                self.findings.append(Finding.of(what, error))

    def model(self) -> None:
        """One batch forward and backward on a copy of the model."""
        rehearsal = self._rehearsal
        if self._learning is None:
            self._look_at_own_model()
            return
        with contextlib.closing(rehearsal), self._noting("model"):
            reason = rehearsal.build(self._learning, self._workers or 1)
            if reason is not None:
                self._warn("model", f"no batch was trained on: {reason}")
                self._look_at_own_model()
                return
            took = {what: self._took(rehearsal, what, *batch) for what, batch in self._batches.items()}
            if took.get("data"):
                tasted, share = self._batches["data"]
                self.findings += rehearsal.train(share, self._load(tasted, share))

    def _look_at_own_model(self) -> None:
        """As fit does: a few rows forward, which needs no copy."""
        for what, (tasted, _) in self._batches.items():
            with self._noting("model"):
                self._estimator._check_batch(tasted.feed, what)

    def _took(self, rehearsal: Rehearsal, what: str, tasted: Taste, share: Share) -> bool:
        with self._noting("model"):
            rehearsal.look(share, what, tasted.is_labelled)
            return True
        return False

    def _load(self, tasted: Taste, share: Share) -> Load:
        workers = self._workers or 1
        if not isinstance(tasted.feed, RowsFeed):
            return Load(-(-share.total // workers), None, workers)
        rows = -(-self._batch_size // workers)
        if tasted.rows is None or not tasted.feed.engine.one_machine:
            return Load(rows, None, workers)
        left = 0 if self._estimator._config.get("drop_last", False) else tasted.rows % self._batch_size
        parts = [len(part) for total in (self._batch_size, left) for part in split(total, workers)]
        return Load(rows, min(filter(None, parts)), workers)

    def memory(self) -> None:
        """What a rank needs against what it has."""
        need = self._rehearsal.memory
        if need is not None and self._around:
            self.findings.append(compare_memory(need, self._around))
        elif need is not None:
            self._warn("memory", f"a worker needs about {need}; what it has is not known")


def _not_picklable(value: Any, name: str) -> NotPicklableError | None:
    try:
        dumps(value, f"the {name}", name)
    except NotPicklableError as error:
        return error
    return None
