"""What torchrun starts in the `start-bare` row: a process that tells its rank and imports nothing heavy."""

from __future__ import annotations

import os

from benchmarks.child import report

if __name__ == "__main__":
    report(checksum=[int(os.environ["RANK"])])
