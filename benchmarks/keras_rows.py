"""The `train-keras` and `predict-keras` rows: ours with Keras, beside PyTorch and TensorFlow's own strategy."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import learn_data
from benchmarks.predict_rows import BATCH_SIZE as PREDICT_BATCH_SIZE
from benchmarks.ranks import WORKERS, as_tensorflow_workers
from benchmarks.row import Bar, Contender, Kind, Row, Settings
from benchmarks.train_rows import ENVIRONMENT, LOOP, NEEDS, torchrun

BATCH_SIZE = 64
EPOCHS = 3
STEPS = {"5m": 200, "25m": 40}
# One thread a worker for TensorFlow too, where it is not ours to say.
THREADS = ENVIRONMENT | {"TF_NUM_INTRAOP_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
MIRRORED = "MultiWorkerMirroredStrategy, tf_keras"
OUR_TORCH = "our PyTorch estimator, local"
TORCH = "PyTorch, Spark DataFrame"


def train_rows(settings: Settings) -> list[Row]:
    return [_train(settings, kind) for kind in STEPS]


def _train(settings: Settings, kind: str) -> Row:
    steps = STEPS[kind] // 10 if settings.quick else STEPS[kind]
    rows = steps * BATCH_SIZE
    job = {
        "folder": str(settings.data / f"train-keras-{rows}"),
        "kind": kind,
        "rows": rows,
        "batch_size": BATCH_SIZE,
        "epochs": EPOCHS,
    }
    ours = _contender("Keras 3, local", "us", "keras_train:ours", {"job": job}, ("keras",))
    mirrored = {"function": "benchmarks.keras_train:mirrored_rank", "arguments": {"job": job}}
    return Row(
        name=f"train-keras-{kind}",
        title=(
            f"MLP of {parameters(kind):,} parameters on {rows:,} rows of 784 floats, {EPOCHS} epochs, batches of "
            f"{BATCH_SIZE}, {WORKERS} workers of 1 thread"
        ),
        contenders=(
            ours,
            _contender(OUR_TORCH, "peer", "keras_train:ours_with_torch", {"job": job}, NEEDS["local"]),
            torchrun(LOOP, "peer", "benchmarks.train:torchrun_rank", job),
            Contender(MIRRORED, "peer", as_tensorflow_workers, mirrored, ("tensorflow", "tf_keras"), THREADS),
        ),
        bars=(
            Bar("at least 0.95 of the rows a second of our PyTorch estimator", OUR_TORCH, at_least=0.95),
            Bar("at least 1.5 times the rows a second of MultiWorkerMirroredStrategy", MIRRORED, at_least=1.5),
        ),
        clock="rate",
        prepare=partial(learn_data.make_arrays, Path(job["folder"]), rows, learn_data.PIXELS, learn_data.CLASSES),
    )


def predict_rows(settings: Settings) -> list[Row]:
    columns, arrays = (count // 10 if settings.quick else count for count in (2_000_000, 200_000))
    return [
        _predict(settings, "columns", columns, f"{columns:,} rows of 20 columns of floats"),
        _predict(settings, "images", arrays, f"{arrays:,} rows of arrays of 784 floats"),
    ]


def _predict(settings: Settings, kind: str, count: int, words: str) -> Row:
    folder = settings.data / f"{kind}-{count}"
    arguments = {"folder": str(folder), "kind": kind, "batch_size": PREDICT_BATCH_SIZE}
    keras = arguments | {"framework": "keras"}
    both = ("keras", *NEEDS["spark"])
    return Row(
        name=f"predict-keras-{kind}",
        title=f"Predict from Parquet with Keras: {words}, 2 workers of 1 thread",
        contenders=(
            _contender("Keras, Spark DataFrame", "us", "predict:ours_on_spark", keras, both),
            _contender("Keras, embedded engine", "us", "predict:ours_on_shards", keras, ("keras", "torch")),
            _contender(TORCH, "peer", "predict:ours_on_spark", arguments, NEEDS["spark"]),
            _contender("PyTorch, embedded engine", "peer", "predict:ours_on_shards", arguments, NEEDS["local"]),
        ),
        clock="rate",
        bars=(Bar("at most 1.3 times the time of PyTorch on the same DataFrame", TORCH, at_most=1.3),),
        prepare=partial(learn_data.make_columns if kind == "columns" else learn_data.make_images, folder, count),
        tolerance=1e-4,  # floats of 32 bits, multiplied in another order
    )


def parameters(kind: str) -> int:
    """How many a model has: of each layer the weights and the biases."""
    widths = learn_data.WIDTHS[kind]
    return sum((before + 1) * after for before, after in pairwise(widths))


def _contender(name: str, kind: Kind, work: str, arguments: dict[str, Any], needs: tuple[str, ...]) -> Contender:
    return Contender(name, kind, f"benchmarks.{work}", arguments, needs, THREADS)
