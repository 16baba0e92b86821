"""What syncs over a network have in common: interfaces, environment variables, and connections that break."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping

import psutil

ECHO_SECONDS = 2.0


def interface_of(address: str) -> str | None:
    """The name of the interface with that address, if this host has one."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address == address for each in addresses):
            return name
    return None


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, and put back what was there before."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def others_first() -> Iterator[None]:
    """Hold back an error of a collective: mostly a peer failed or was lost, and the driver should hear of that first.

    It ends the gang then, this process included, so that nobody waits for nothing."""
    try:
        yield
    except RuntimeError:
        time.sleep(ECHO_SECONDS)
        raise
