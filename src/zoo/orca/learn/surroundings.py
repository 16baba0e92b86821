"""What a worker finds around it (versions, memory), asked by a short gang, and compared with the driver's."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from zoo.orca.engine.gang import GangOptions, run_gang
from zoo.orca.errors import MissingPackageError, NotEnoughMemoryError, VersionMismatchError
from zoo.orca.learn.check_report import Finding
from zoo.orca.learn.rehearsal import Memory, in_words
from zoo.orca.version import __version__

if TYPE_CHECKING:
    from zoo.orca.engine.base import Engine
    from zoo.orca.engine.worker import Worker

# Packages that carry data and functions between driver and workers.
PACKAGES = ("numpy", "pandas", "pyarrow", "cloudpickle")
# What these write, another major or minor version may not read; so it is with frameworks.
STRICT = ("python", "cloudpickle")
# Above this part of what is free there is little room for what no estimate knows.
TIGHT = 0.8
ASK_SECONDS = 60.0

Versions = dict[str, str | None]
Room = Callable[["Worker"], "int | None"]


@dataclass(frozen=True)
class Surroundings:
    """What one rank found.

    Attributes:
        host: where it is.
        versions: of Python, of ours and of packages by name; None where one is not installed.
        memory: the bytes of main memory that are free for this rank.
        device: the bytes that are free for this rank where models lie, if that is not main memory.
    """

    host: str
    versions: Versions
    memory: int
    device: int | None = None

    @property
    def room(self) -> int:
        return self.memory if self.device is None else self.device


def ask_workers(engine: Engine, workers: int, packages: Iterable[str], room: Room | None) -> list[Surroundings]:
    """What each of so many workers finds, by rank. They are gone when this returns."""
    options = GangOptions(start_timeout=ASK_SECONDS, stall_timeout=ASK_SECONDS)
    return run_gang(engine, _look_around, workers, tuple(packages), room, options=options)


def _look_around(worker: Worker, packages: tuple[str, ...], room: Room | None) -> Surroundings:
    host = worker.peers[worker.rank]
    device = None if room is None else room(worker)
    return Surroundings(host, versions(packages), free_memory() // worker.local_size, device)


def versions(packages: Iterable[str]) -> Versions:
    """The versions that this process would use; nothing is imported."""
    found: Versions = {"python": platform.python_version(), "zoo": __version__}
    for package in (*PACKAGES, *packages):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def compare_versions(driver: Versions, workers: Sequence[Surroundings], strict: Iterable[str] = ()) -> list[Finding]:
    """A finding for each package that differs, or one that says that none does.

    Args:
        strict: packages beside Python and cloudpickle that must agree in major and minor version.
    """
    findings = []
    for package, here in driver.items():
        others: dict[str | None, list[int]] = {}
        for rank, each in enumerate(workers):
            if here is not None and each.versions.get(package) != here:
                others.setdefault(each.versions.get(package), []).append(rank)
        findings += [
            _difference(package, here, there, ranks, workers[ranks[0]].host, package in (*STRICT, *strict))
            for there, ranks in others.items()
        ]
    if findings:
        return findings
    shown = ", ".join(f"{package} {driver[package]}" for package in ("python", "zoo", *strict) if driver.get(package))
    return [Finding("versions", "ok", f"{shown} and others are the same here and on {len(workers)} worker(s)")]


def _difference(
    package: str, here: str | None, there: str | None, ranks: list[int], host: str, strict: bool
) -> Finding:
    where = f"rank(s) {', '.join(map(str, ranks))} ({host})"
    name = "Python" if package == "python" else package
    if there is None:
        text = f"{name} {here} is installed here, but not on {where}. Type there: pip install {package}=={here}"
        return Finding.of("versions", MissingPackageError(text)) if strict else Finding("versions", "warning", text)
    text = f"{name} is {here} here, but {there} on {where}. "
    if package == "python":
        text += "Start the workers with this interpreter (PYSPARK_PYTHON, or the environment that Ray was started in)."
    else:
        text += f"Install the same on both: pip install {package}=={here}"
    if strict and _minor(here) != _minor(there):
        return Finding.of("versions", VersionMismatchError(text))
    return Finding("versions", "warning", text)


def _minor(version: str | None) -> list[str]:
    return (version or "").split(".")[:2]


def compare_memory(need: Memory, workers: Sequence[Surroundings]) -> Finding:
    """Whether what a rank needs fits where there is least room."""
    tightest = min(workers, key=lambda each: each.room)
    part = need.total / max(tightest.room, 1)
    where = "of GPU memory" if tightest.device is not None else "of memory"
    text = f"a worker needs about {need}; {in_words(tightest.room)} {where} are free for it on {tightest.host}"
    if part <= TIGHT:
        return Finding("memory", "ok", text)
    text += ". Use a smaller batch_size, more machines, or a smaller model."
    if part <= 1:
        return Finding("memory", "warning", f"{part:.0%} would be used: {text}")
    return Finding.of("memory", NotEnoughMemoryError(text))


def free_memory() -> int:
    """The bytes that processes here may still take: of the machine, or of the container if that has less."""
    return min([psutil.virtual_memory().available, *_free_in_container()])


def _free_in_container(folder: Path = Path("/sys/fs/cgroup")) -> list[int]:
    """What a container's limit leaves, if it has one. Files that are cached count as free, as they do for a machine."""
    try:
        limit = int((folder / "memory.max").read_text())  # "max" is no number
        used = int((folder / "memory.current").read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return [max(0, limit - used + int(stat["inactive_file"]))]
    except (OSError, ValueError, KeyError):
        return []
