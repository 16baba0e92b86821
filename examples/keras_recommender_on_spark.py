"""A recommender in Keras on a Spark DataFrame: two columns are two inputs, and a column of predictions comes back.

python examples/keras_recommender_on_spark.py
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pandas as pd

from zoo.orca import OrcaContext, init_orca_context, stop_orca_context
from zoo.orca.learn.tf2 import Estimator

USERS, ITEMS, RATINGS = 300, 120, 20_000


def create_model(config: dict[str, Any]) -> Any:
    """Matrix factorisation: a rating is what a user's and an item's vectors have in common, and their own biases."""
    import keras

    user, item = keras.Input((), dtype="int64", name="user"), keras.Input((), dtype="int64", name="item")
    near_zero = keras.initializers.RandomNormal(stddev=0.1)
    tables = [keras.layers.Embedding(count, config["factors"], near_zero) for count in (USERS, ITEMS)]
    biases = [keras.layers.Embedding(count, 1) for count in (USERS, ITEMS)]
    common = keras.layers.Dot(axes=1)([table(ids) for table, ids in zip(tables, (user, item), strict=True)])
    rating = keras.layers.Add()([common, *(bias(ids) for bias, ids in zip(biases, (user, item), strict=True))])
    rating = keras.layers.Rescaling(1.0, offset=3.0)(rating)
    model = keras.Model([user, item], keras.layers.Reshape(())(rating))
    model.compile(keras.optimizers.Adam(config["lr"]), "mse", metrics=["mae"])
    return model


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

    # TensorFlow is imported by the workers; this process needs no model of its own.
    est = Estimator.from_keras(model_creator=create_model, config={"lr": 0.02, "factors": 8}, num_workers=2)
    columns = {"feature_cols": ["user", "item"], "label_cols": ["rating"]}
    for _ in range(2):  # a second fit goes on where the first one ended
        figures = est.fit(train, epochs=3, batch_size=500, validation_data=test, **columns)
        print(f"{est}: loss {figures['train_loss']:.3f}, off by {figures['train_val_mae']:.3f} on held-out rows")

    # The result is a DataFrame again, with all its columns.
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
