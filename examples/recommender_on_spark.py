"""A recommender on a Spark DataFrame: columns in, a column of predicted ratings out, and Spark SQL on both sides.

python examples/recommender_on_spark.py
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from zoo.orca import OrcaContext, init_orca_context, stop_orca_context
from zoo.orca.learn.metrics import MAE
from zoo.orca.learn.pytorch import Estimator

USERS, ITEMS, RATINGS = 300, 120, 20_000


class Recommender(nn.Module):
    """Matrix factorisation: a rating is what a user's and an item's vectors have in common, and their own biases."""

    def __init__(self, users: int, items: int, factors: int = 8):
        super().__init__()
        self.users, self.items = nn.Embedding(users, factors + 1), nn.Embedding(items, factors + 1)
        for table in (self.users, self.items):
            nn.init.normal_(table.weight, std=0.1)
        self.mean = nn.Parameter(torch.tensor(3.0))

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        u, i = self.users(user), self.items(item)
        return self.mean + u[:, 0] + i[:, 0] + (u[:, 1:] * i[:, 1:]).sum(dim=1)


def ratings(spark: Any) -> Any:
    """What users gave to items: tastes nobody sees, and some noise."""
    random = np.random.default_rng(3)
    tastes, kinds = random.normal(size=(USERS, 3)), random.normal(size=(ITEMS, 3))
    user, item = random.integers(USERS, size=RATINGS), random.integers(ITEMS, size=RATINGS)
    rating = 3 + 0.6 * (tastes[user] * kinds[item]).sum(axis=1) + random.normal(scale=0.2, size=RATINGS)
    frame = pd.DataFrame({"user": user, "item": item, "rating": rating.astype(np.float32)})
    return spark.createDataFrame(frame).repartition(4)


def example() -> None:
    train, test = ratings(OrcaContext.get_spark_session()).randomSplit([0.9, 0.1], seed=5)
    train, test = train.cache(), test.cache()

    torch.manual_seed(0)
    est = Estimator.from_torch(
        model=lambda config: Recommender(USERS, ITEMS),
        optimizer=lambda model, config: torch.optim.Adam(model.parameters(), lr=config["lr"]),
        loss=nn.MSELoss(),
        metrics=MAE(),
        config={"lr": 0.02},
        backend="spark",
        num_workers=2,
    )
    columns = {"feature_cols": ["user", "item"], "label_cols": ["rating"]}
    for epoch in est.fit(train, epochs=6, batch_size=500, validation_data=test, **columns):
        print(f"epoch {epoch['epoch']}: loss {epoch['train_loss']:.3f}, off by {epoch['val_MAE']:.3f} on held-out rows")

    # Two columns are two arguments of forward(user, item). The result is a DataFrame again, with all its columns.
    predicted = est.predict(test, batch_size=1000, feature_cols=["user", "item"])
    predicted.printSchema()
    shown = predicted.selectExpr("user", "item", "round(rating, 1) rating", "round(prediction, 1) prediction")
    shown.orderBy("user", "item", "rating").show(5)

    everything = OrcaContext.get_spark_session().range(ITEMS).selectExpr("42L AS user", "id AS item")
    best = est.predict(everything, feature_cols=["user", "item"]).orderBy("prediction", ascending=False)
    print("for user 42:", [row["item"] for row in best.limit(5).collect()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=["spark"], default="spark", help="a Spark DataFrame lies on Spark")
    parser.parse_args()
    init_orca_context("local", cores=2)
    try:
        example()
    finally:
        stop_orca_context()


if __name__ == "__main__":
    main()
