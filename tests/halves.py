"""`python tests/halves.py [options of pytest]`: the whole suite as two runs at once, which wait in turn.

Tests spend most of their time waiting for processes that start and end, so that one run leaves a core idle. One half
are the tests on engines that all of them share; the other are those that start their own. What the second one says is
shown when the first is done.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
NO_TESTS = 5


def main(options: list[str]) -> int:
    command = [sys.executable, "-m", "pytest", *options]
    with tempfile.TemporaryFile("w+") as said:
        other = subprocess.Popen([*command, "--half=own"], stdout=said, stderr=subprocess.STDOUT, cwd=ROOT)
        try:
            codes = [subprocess.call([*command, "--half=shared"], cwd=ROOT), other.wait()]
        finally:
            if other.poll() is None:
                other.terminate()
                other.wait()
            said.seek(0)
            sys.stdout.write(said.read())
    # A choice of tests may leave nothing for one of them.
    wrong = [code for code in codes if code not in (0, NO_TESTS)]
    return wrong[0] if wrong else NO_TESTS if set(codes) == {NO_TESTS} else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
