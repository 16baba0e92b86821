"""Spark's daemon of Python workers, which are its forks, with what our tasks need imported beforehand.

Spark runs it as it would run `pyspark.daemon` (`spark.python.daemon.module`), one for each set of variables that tasks
have: those that need torch name it in `IMPORTS`, and those that need nothing do not wait for it.
"""

from __future__ import annotations

import os

from zoo.orca.engine.preload import import_ahead, seed_anew
from zoo.orca.engine.spark_settings import IMPORTS


def _run() -> None:
    from pyspark.daemon import manager

    daemon = os.getpid()

    def seed_worker() -> None:
        if os.getppid() == daemon:  # and not what a worker forks
            seed_anew()

    import_ahead(filter(None, os.environ.get(IMPORTS, "").split(",")))
    os.register_at_fork(after_in_child=seed_worker)
    manager()


if __name__ == "__main__":
    _run()
