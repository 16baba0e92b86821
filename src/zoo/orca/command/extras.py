"""What pyproject.toml asks for, as the installed package tells it, against what is there."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from zoo.orca.command.apart import Failure, run_apart
from zoo.orca.command.diagnosis import Diagnosis
from zoo.orca.optional import DISTRIBUTION, EXTRA_OF, INSTALL_LINES, PINNED, installed

CORE = "core"


def look_at_extras(seconds: float | None) -> Iterator[Diagnosis]:
    """A finding for what is always needed, for each extra, and for what no extra brings.

    Args:
        seconds: how long the libraries of an extra may take to load; None loads none.
    """
    try:
        metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        yield Diagnosis(
            "Packages",
            DISTRIBUTION,
            "error",
            "is on the path, but not installed, so that nothing tells which versions were tested",
            pip_line("pip install -e .    # in the checkout"),
        )
        return
    yield _look_at("", ["numpy", "pandas", "pyarrow"], seconds)
    for extra in dict.fromkeys(EXTRA_OF.values()):
        yield _look_at(extra, [module for module, its in EXTRA_OF.items() if its == extra], seconds)
    yield _look_at("horovod", ["horovod.torch"], seconds)


def requirements_of(extra: str = "") -> list[Requirement]:
    """What an extra asks for, those of extras that it names included; without a name, what is always needed.

    >>> [each.name for each in requirements_of("torch")]
    ['torch']
    """
    found = []
    for line in metadata.requires(DISTRIBUTION) or ():
        requirement = Requirement(line)
        marked = "extra ==" in str(requirement.marker or "")
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        if not applies or marked != bool(extra):
            continue
        if requirement.name == DISTRIBUTION:
            found += [each for inner in sorted(requirement.extras) for each in requirements_of(inner)]
        else:
            requirement.marker = None
            found.append(requirement)
    return [*found, Requirement(f"{extra}=={PINNED[extra]}")] if extra in PINNED else found


def typed(script: str, module: str) -> str:
    """How to type a script of this Python: by its name, if that finds this one and no other program of that name."""
    found = shutil.which(script)
    ours = found is not None and Path(found).parent == Path(sys.executable).parent
    return script if ours else f"{sys.executable} -m {module}"


def pip_line(line: str) -> str:
    """A line that begins with pip, such that it installs for this Python."""
    return line.replace("pip install", f"{typed('pip', 'pip')} install")


def _look_at(extra: str, modules: list[str], seconds: float | None) -> Diagnosis:
    """The versions of an extra's packages against those that were tested, and whether its libraries load."""
    name, asked = extra or CORE, requirements_of(extra)
    versions = {each: _version(each.name) for each in asked}
    missing = [each for each, version in versions.items() if version is None]
    if missing:
        lacking = ", ".join(each.name for each in missing)
        text = "not installed" if len(missing) == len(asked) else f"not installed as a whole: {lacking} missing"
        return Diagnosis("Packages", name, "absent" if extra else "error", text, _line_for(extra, missing))
    text = ", ".join(f"{each.name} {version}" for each, version in versions.items())
    tried = None if seconds is None else run_apart(["load", *filter(installed, modules)], seconds)
    if isinstance(tried, Failure):
        return Diagnosis("Packages", name, "error", f"{text}: {tried}", _line_for(extra, asked, again=True))
    took = None if tried is None else tried["seconds"]
    untested = [each for each, version in versions.items() if not each.specifier.contains(version or "", True)]
    if untested:
        ranges = ", ".join(f"{each.name}{each.specifier}" for each in untested)
        return Diagnosis("Packages", name, "warning", f"{text}: tested was {ranges}", _line_for("", untested), took)
    return Diagnosis("Packages", name, "ok", text, seconds=took)


def _line_for(extra: str, requirements: list[Requirement], again: bool = False) -> str:
    """What to type for packages that are missing, broken (`again`) or of another version than was tested."""
    pinned = [each.name for each in requirements if each.name in PINNED]
    if pinned or (extra and not again):
        return pip_line(INSTALL_LINES[pinned[0]] if pinned else f'pip install "{DISTRIBUTION}[{extra}]"')
    options = ["--force-reinstall"] if again else []
    return pip_line(" ".join(["pip install", *options, *(f'"{each}"' for each in requirements)]))


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
