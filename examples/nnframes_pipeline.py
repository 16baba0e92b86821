"""A torch module in a Spark ML pipeline: assembled and scaled features, NNClassifier, cross-validation, files.

python examples/nnframes_pipeline.py
"""

from __future__ import annotations

import argparse
import tempfile

import numpy as np
import torch
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import StandardScaler, VectorAssembler
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
from pyspark.sql import DataFrame, SparkSession

from zoo.orca import init_orca_context, stop_orca_context
from zoo.pipeline.nnframes import NNClassifier

KINDS = ["small", "middle", "large"]


def measured(count: int, seed: int) -> DataFrame:
    """Flowers of three kinds: length and width in millimetres, and the number of the kind, from 0."""
    random = np.random.default_rng(seed)
    kinds = random.integers(len(KINDS), size=count)
    length = random.normal(20.0 + 18.0 * kinds, 4.0)
    width = random.normal(9.0 + 6.0 * kinds, 2.0)
    rows = [(float(a), float(b), float(kind)) for a, b, kind in zip(length, width, kinds, strict=True)]
    return SparkSession.builder.getOrCreate().createDataFrame(rows, "length double, width double, label double")


def make_pipeline() -> tuple[Pipeline, NNClassifier]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, len(KINDS)))
    classifier = NNClassifier(net, torch.nn.CrossEntropyLoss()).setFeaturesCol("scaled").setBatchSize(32)
    classifier.setOptimMethod(torch.optim.Adam(net.parameters())).setMaxEpoch(6)
    assembler = VectorAssembler(inputCols=["length", "width"], outputCol="features")
    scaler = StandardScaler(inputCol="features", outputCol="scaled", withMean=True)
    return Pipeline(stages=[assembler, scaler, classifier]), classifier


def example() -> None:
    train, test = measured(240, seed=1), measured(100, seed=2)
    pipeline, classifier = make_pipeline()
    judge = MulticlassClassificationEvaluator(metricName="accuracy")
    grid = ParamGridBuilder().addGrid(classifier.learningRate, [0.0001, 0.02]).build()
    found = CrossValidator(estimator=pipeline, estimatorParamMaps=grid, evaluator=judge, numFolds=2, seed=3).fit(train)
    best = grid[int(np.argmax(found.avgMetrics))][classifier.learningRate]
    print(f"the better learning rate of two: {best}")
    with tempfile.TemporaryDirectory() as folder:
        found.bestModel.save(f"{folder}/flowers")
        loaded = PipelineModel.load(f"{folder}/flowers")
    predicted = loaded.transform(test)
    print(f"columns: {', '.join(predicted.columns)}")
    print(f"more than nine of ten flowers right: {judge.evaluate(predicted) > 0.9}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=["spark"], default="spark", help="Spark ML needs Spark (default: spark)")
    parser.parse_args()
    init_orca_context("local", cores=2)
    try:
        example()
    finally:
        stop_orca_context()


if __name__ == "__main__":
    main()
