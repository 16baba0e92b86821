"""TFPredictor: the outputs of a graph for every record of a TFDataset."""

from __future__ import annotations

from typing import Any

from zoo.orca.learn.tf.frozen import as_tensors
from zoo.tfpark.tf_dataset import TFDataset, columns_of, dataset_of
from zoo.tfpark.tfnet import TFNet


class TFPredictor:
    """Computes tensors of a graph for the records of the TFDataset whose tensors they are computed from.

    Args:
        sess: the session with the values of the graph's variables.
        outputs: a tensor or a list of them.
        inputs, dataset: the tensors to feed, and the dataset that feeds them, where they are not dataset.tensors.

    Example:
        predictions = TFPredictor(sess, [logits]).predict().collect()
    """

    def __init__(self, sess: Any, outputs: Any, inputs: Any = None, dataset: TFDataset | None = None):
        self.sess = sess
        self._outputs = as_tensors(outputs, "outputs")
        self._dataset = dataset_of(self._outputs) if dataset is None else dataset
        self._inputs, self._columns = columns_of(self._dataset, self._outputs, inputs)

    def __repr__(self) -> str:
        outputs = ", ".join(output.name for output in self._outputs)
        return f"TFPredictor({outputs} of {self._dataset!r})"

    @classmethod
    def from_outputs(cls, sess: Any, outputs: Any) -> TFPredictor:
        """The same as the constructor."""
        return cls(sess, outputs)

    @staticmethod
    def from_keras(keras_model: Any, dataset: TFDataset) -> TFPredictor:
        """Predict with a model of Keras 3, or of tf_keras in graph mode, for the features of a dataset."""
        from zoo.tfpark.keras_optimizer import KerasTFPredictor

        return KerasTFPredictor(keras_model, dataset)

    def predict(self) -> Any:
        """An array for each record, or a list of arrays for several outputs.

        It is an RDD on Spark, and `zoo.orca.learn.records.Records`, which has collect(), on other engines. Where the
        dataset has no batch, the graph is run for one record at a time.
        """
        net = TFNet.from_session(self.sess, self._inputs, self._outputs)
        return net.predict_dataset(self._dataset, self._columns)
