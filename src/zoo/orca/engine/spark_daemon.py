"""Spark's daemon of Python workers, which are its forks, with what our tasks need imported beforehand.

Spark runs it as it would run `pyspark.daemon` (`spark.python.daemon.module`), one for each set of variables that tasks
have: `IMPORTS` names what they need. A session that has needed torch once has it named from then on, so that all its
tasks share one daemon.
"""

from __future__ import annotations

import os
from typing import Any

from zoo.orca.engine.preload import import_ahead, seed_anew
from zoo.orca.engine.spark_settings import IMPORTS


def _run() -> None:
    from pyspark import daemon

    own, work = os.getpid(), daemon.worker

    def seed_worker() -> None:
        if os.getppid() == own:  # and not what a worker forks
            seed_anew()

    def work_until_nobody_listens(*arguments: Any) -> int:
        try:
            return work(*arguments)
        except ConnectionError:  # Spark has stopped, or has the rows it wanted: no reason for a traceback
            os._exit(1)

    import_ahead(filter(None, os.environ.get(IMPORTS, "").split(",")))
    os.register_at_fork(after_in_child=seed_worker)
    daemon.worker = work_until_nobody_listens
    daemon.manager()


if __name__ == "__main__":
    _run()
