"""`orca bench`: the benchmarks of a checkout, with the options of `python -m benchmarks`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import zoo
from zoo.orca.errors import PathNotFoundError

# src/zoo/__init__.py of a checkout; in an installed wheel nothing of ours lies there.
CHECKOUT = Path(zoo.__file__).resolve().parents[2]


def bench(arguments: list[str], checkout: Path = CHECKOUT) -> int:
    """Run the benchmarks in their own process, and return its exit code."""
    if not (checkout / "benchmarks" / "__main__.py").exists():
        raise PathNotFoundError(
            "the benchmarks measure us beside other libraries and are a part of the source repository, not of what pip"
            f" installs. In a clone of it, type: make bench{_make_arguments(arguments)}"
        )
    return subprocess.run([sys.executable, "-m", "benchmarks", *arguments], cwd=checkout, check=False).returncode


def _make_arguments(arguments: list[str]) -> str:
    return f' ARGS="{" ".join(arguments)}"' if arguments else ""
