"""The `nnframes` rows: Spark ML stages beside the estimator that does the work for both."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks import learn_data
from benchmarks.row import Bar, Contender, Kind, Row, Settings
from benchmarks.train_rows import ENVIRONMENT, NEEDS

FIT_ROWS, TRANSFORM_ROWS = 1_000_000, 2_000_000
FIT, PREDICT = "Estimator.fit", "Estimator.predict"


def rows(settings: Settings) -> list[Row]:
    return [
        _row(settings, "fit", FIT_ROWS, {"batch_size": 8192, "epochs": 2}, ("stage_fit", "estimator_fit"), FIT),
        _row(
            settings,
            "transform",
            TRANSFORM_ROWS,
            {"batch_size": 4096},
            ("stage_transform", "estimator_predict"),
            PREDICT,
        ),
    ]


def _row(
    settings: Settings, name: str, count: int, options: dict[str, Any], functions: tuple[str, str], peer: str
) -> Row:
    count = count // 10 if settings.quick else count
    folder = settings.data / f"columns-{count}"

    def contend(name: str, kind: Kind, function: str) -> Contender:
        arguments = {"folder": str(folder), **options}
        return Contender(name, kind, f"benchmarks.nnframes:{function}", arguments, NEEDS["spark"], ENVIRONMENT)

    stage = "NNEstimator.fit" if name == "fit" else "NNModel.transform"
    words = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in options.items())
    return Row(
        name=f"nnframes-{name}",
        title=f"A Spark ML stage beside the estimator: {count:,} rows of arrays of {learn_data.WIDTH} floats, {words}",
        contenders=(contend(stage, "us", functions[0]), contend(peer, "peer", functions[1])),
        bars=(Bar("at most 1.1 times the time through zoo.orca.learn.pytorch", peer, at_most=1.1),),
        prepare=partial(learn_data.make_columns, folder, count),
        tolerance=1e-4,  # floats of 32 bits
    )
