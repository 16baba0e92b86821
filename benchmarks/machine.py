"""Where and when something was measured: never typed by hand."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterable
from datetime import date
from pathlib import Path

import psutil

PACKAGES = (
    "pandas",
    "pyarrow",
    "torch",
    "tensorflow",
    "keras",
    "pyspark",
    "ray",
    "lightning",
    "dask",
    "modin",
    "polars",
)


def describe(packages: Iterable[str] = PACKAGES) -> str:
    """Date, machine, how busy it was, and versions, as one sentence."""
    cores, memory = len(os.sched_getaffinity(0)), psutil.virtual_memory().total / 2**30
    versions = ", ".join(f"{name} {_version(name)}" for name in packages)
    return (
        f"Measured on {date.today()} on {cores} cores ({_processor()}), {memory:.0f} GB, load {os.getloadavg()[0]:.1f} "
        f"before the start; {platform.system()} {platform.release()}, Python {platform.python_version()}, {versions}."
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
