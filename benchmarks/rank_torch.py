"""What torchrun starts in the `start-torch` row: a process that joins gloo, waits for its peer and tells its rank."""

from __future__ import annotations

from benchmarks.child import report
from benchmarks.gangs import join_gloo

if __name__ == "__main__":
    report(checksum=[join_gloo()])
