"""Modules are left out of the search for garbage, and what a fit left out is looked at again."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import gc, torch
from zoo.orca.engine.garbage import leave_modules_out, long_lived, paused

def searched():
    return len(gc.get_objects())

everything = searched()
leave_modules_out()
assert searched() < everything / 10, (searched(), everything)

class Ring:
    def __init__(self):
        self.ring = self

rings = [Ring() for _ in range(500)]
leave_modules_out()
assert searched() > 500, "there are no new modules, so what came since is searched"
del rings
assert gc.collect() >= 500

with long_lived():
    assert searched() < 1000
assert searched() >= everything / 2, "what outlasted a fit may have become garbage"
leave_modules_out()
assert searched() < everything / 10

with paused():
    assert not gc.isenabled()
assert gc.isenabled()
"""


def test_modules_are_left_out_and_garbage_is_found():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
