"""Train where the data is, write the model for OpenVINO, and serve it from there: digits on Spark, or anywhere.

python examples/train_export_serve.py --engine spark      # or local, or ray
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_digits

from zoo.orca import OrcaContext, init_orca_context, stop_orca_context
from zoo.orca.data import XShards
from zoo.orca.learn.metrics import Accuracy
from zoo.orca.learn.openvino import Estimator as ServingEstimator
from zoo.orca.learn.pytorch import Estimator

CONTEXTS = {"local": "embedded", "spark": "local", "ray": "ray"}


def table(frame: pd.DataFrame, engine: str) -> Any:
    """Rows where an engine has them: a Spark DataFrame, or shards of pandas frames."""
    if engine == "spark":
        return OrcaContext.get_spark_session().createDataFrame(frame).repartitionByRange(4, "number").sort("number")
    return XShards.partition(frame, num_shards=4)


def predictions(served: Any) -> np.ndarray:
    """The predictions of such a table, in its order."""
    if isinstance(served, XShards):
        return np.concatenate([shard["prediction"] for shard in served.collect()])
    return np.stack(served.toPandas()["prediction"])


def example(engine: str, folder: Path) -> None:
    x, y = load_digits(return_X_y=True)
    frame = pd.DataFrame({"number": np.arange(len(y)), "pixels": list((x / 16).astype(np.float32)), "digit": y})
    train, test = table(frame[:1500], engine), table(frame[1500:], engine)

    est = Estimator.from_torch(
        model=lambda config: torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)),
        optimizer=lambda model, config: torch.optim.Adam(model.parameters(), lr=0.01),
        loss=torch.nn.CrossEntropyLoss(),
        metrics=Accuracy(),
        num_workers=2,
    )
    est.fit(train, epochs=10, batch_size=50, feature_cols=["pixels"], label_cols=["digit"])

    print(est.export("openvino", str(folder / "digits.xml")))
    small = est.export("openvino", str(folder / "digits-int8.xml"), int8=train)
    print("int8:", small.int8)

    for name in ("digits.xml", "digits-int8.xml"):
        served = ServingEstimator.from_openvino(model_path=str(folder / name))
        read = predictions(served.predict(test, feature_cols=["pixels"], batch_size=64)).argmax(axis=1)
        print(f"{name}: {np.mean(read == y[1500:]):.2f} of {len(read)} held-out digits right")
    print("the first ten are read as", read[:10].tolist())
    print("                 they are", y[1500:1510].tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=CONTEXTS, default="spark", help="where to run (default: spark)")
    engine = parser.parse_args().engine
    init_orca_context(CONTEXTS[engine], cores=2)
    try:
        with tempfile.TemporaryDirectory(prefix="orca-example-") as folder:
            example(engine, Path(folder))
    finally:
        stop_orca_context()


if __name__ == "__main__":
    main()
