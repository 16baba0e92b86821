"""TFNet: a TensorFlow graph, or a part of one, as a layer that is only run."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from bigdl.util.common import EvaluatedResult
from zoo.orca.data.file import filesystem_of, is_local
from zoo.orca.errors import InvalidArgumentError, NotOfferedError, PathNotFoundError
from zoo.orca.learn.predict.model import load_here, predict_rows
from zoo.orca.learn.records import (
    as_records,
    measure_records,
    place_arrays,
    placement_of,
    predict_batches,
    predict_records,
    take_columns,
)
from zoo.orca.learn.tf.frozen import FrozenGraph, OpenGraph, as_tensors, freeze, quiet
from zoo.orca.learn.tf2.quiet import start_here
from zoo.tfpark.tf_dataset import TFDataset

SERVING_TAG = "serve"
SERVING_SIGNATURE = "serving_default"


class NetPredictor:
    """A frozen graph on its way to where rows are predicted."""

    def __init__(self, frozen: FrozenGraph):
        # Processes that hold the same graph already use theirs.
        self.key = hashlib.sha256(repr((frozen.names, frozen.session_config)).encode() + frozen.graph_def).hexdigest()
        self._frozen = frozen

    def load(self) -> Callable[[tuple[Any, ...]], Any]:
        """A function from a batch of the inputs to the outputs; a graph that knows no batches is run row by row."""
        opened = self._frozen.open()

        def predict(features: tuple[Any, ...]) -> Any:
            outputs = _by_row(opened, features) if _is_unbatched(opened, features) else opened.run(features)
            return outputs[0] if len(outputs) == 1 else outputs

        return predict


class TFNet:
    """A TensorFlow graph between some tensors, whose variables are constants; it can be sent anywhere.

    Example:
        net = TFNet.from_session(sess, inputs=[images], outputs=[logits])
        net.forward(np.zeros((2, 28, 28, 1)))
        net.predict(np.zeros((100, 28, 28, 1)), batch_per_thread=10, distributed=False)
    """

    def __init__(self, frozen: FrozenGraph):
        self._frozen = frozen
        self._predictor = NetPredictor(frozen)
        self._opened: OpenGraph | None = None

    def __repr__(self) -> str:
        names = self._frozen.names
        return f"TFNet({', '.join(names.input_names)} -> {', '.join(names.output_names)})"

    @staticmethod
    def from_session(
        sess: Any,
        inputs: Any,
        outputs: Any,
        generate_backward: bool = False,
        allow_non_differentiable_input: bool = True,
        tf_session_config: Any = None,
    ) -> TFNet:
        """The graph of a session between some tensors, with the values its variables have now.

        The graph is not changed, and the session may be closed afterwards.

        Args:
            generate_backward: whether `backward` is wanted.
            allow_non_differentiable_input: whether an input may have no gradient; it is zero then.
            tf_session_config: a tf.compat.v1.ConfigProto for the sessions that the net is run in.
        """
        return TFNet(
            freeze(sess, inputs, outputs, generate_backward, allow_non_differentiable_input, tf_session_config)
        )

    @staticmethod
    def from_export_folder(folder: str, tf_session_config: Any = None) -> TFNet:
        """What `zoo.util.tf.export_tf` wrote: frozen_inference_graph.pb and graph_meta.json."""
        config = None if tf_session_config is None else tf_session_config.SerializeToString()
        return TFNet(FrozenGraph.read(folder, config))

    @staticmethod
    def from_saved_model(
        model_path: str,
        tag: str | None = None,
        signature: str | None = None,
        inputs: Any = None,
        outputs: Any = None,
        tf_session_config: Any = None,
        init_op: str | None = None,
    ) -> TFNet:
        """A SavedModel of TensorFlow 1 or 2, or an export of Keras 3, in a folder of this machine.

        Args:
            tag: of the graph in the SavedModel; "serve" if left out.
            signature: which names the inputs and outputs, in the order of their names; "serving_default" if left out.
            inputs, outputs: names of tensors, instead of the signature's.
            init_op: the name of an operation to run first.
        """
        with _loaded(model_path, tag or SERVING_TAG, tf_session_config) as (sess, signatures):
            if init_op is not None:
                sess.run(sess.graph.get_operation_by_name(init_op))
            if not (inputs and outputs):
                known = _signature(signatures, signature or SERVING_SIGNATURE)
                inputs, outputs = inputs or _names(known.inputs), outputs or _names(known.outputs)
            sources, results = _tensors(sess, inputs), _tensors(sess, outputs)
            return TFNet.from_session(sess, sources, results, tf_session_config=tf_session_config)

    def forward(self, input: Any) -> Any:
        """The output for an array, or for a list of them; a list if the graph has several outputs."""
        outputs = self._open().run(_arguments(input))
        return outputs[0] if len(outputs) == 1 else outputs

    def backward(self, input: Any, grad_output: Any) -> Any:
        """The gradient of the input, where that of the output is given; needs generate_backward."""
        grads = self._open().gradients(_arguments(input), _arguments(grad_output))
        return grads[0] if len(grads) == 1 else grads

    def predict(self, x: Any, batch_per_thread: int = 1, distributed: bool = True, mini_batch: bool = False) -> Any:
        """The output for every record, in order.

        Arrays with distributed=False give an array (a list for several outputs), and an ImageSet an ImageSet, for
        `get_predict()`. Everything else gives an RDD with an array, or a list of arrays, for each record on Spark, and
        `zoo.orca.learn.records.Records`, which has collect(), on the other engines.

        Args:
            x: an array or a list of arrays; an RDD (or XShards, or list) of Sample; a TFDataset; an ImageSet.
            batch_per_thread: records of a run of the graph; a TFDataset has its own.
            mini_batch: whether each record of x is a whole batch already.
        """
        if isinstance(x, TFDataset):
            return self.predict_dataset(x)
        if hasattr(x, "predict_with"):
            return x.predict_with(self._predictor, batch_per_thread)
        if hasattr(x, "get_image"):
            raise NotOfferedError(
                f"A {type(x).__name__} cannot be predicted here. Give its samples: an RDD of zoo.common.Sample."
            )
        if _are_arrays(x):
            arrays = [np.asarray(each) for each in _arguments(x)]
            if not distributed:
                return predict_rows(load_here(self._predictor), tuple(arrays), batch_per_thread)
            return as_records(predict_records(place_arrays(arrays), self._predictor, batch_per_thread))
        records = placement_of(x, "x").map(_samples_as_records, changes=False)
        count = len(self._frozen.names.input_names)
        if mini_batch:
            return as_records(predict_batches(take_columns(records, range(count)), self._predictor))
        return as_records(predict_records(take_columns(records, range(count)), self._predictor, batch_per_thread))

    def evaluate(self, dataset: Any = None, batch_size: int | None = None, val_methods: Any = None) -> Any:
        """What validation methods say of an RDD (or XShards, or list) of Sample, as a list of EvaluatedResult.

        Without arguments it returns the net: a net that is only run has no training mode to leave.
        """
        if dataset is None:
            return self
        if not val_methods:
            raise InvalidArgumentError(
                "Expected val_methods to be validation methods, such as [Top1Accuracy()], got none."
            )
        methods = _arguments(val_methods)
        count = len(self._frozen.names.input_names)
        records = placement_of(dataset, "dataset").map(_samples_as_records, changes=False)
        measured = measure_records(
            records, self._predictor, batch_size or 1, [(0, method) for method in methods], range(count), count
        )
        return [EvaluatedResult(value, rows, name) for name, value, rows in measured]

    def training(self, is_training: bool = True) -> TFNet:
        """The net itself: what is only run has no training mode."""
        return self

    def predict_dataset(self, dataset: TFDataset, columns: Sequence[int] | None = None) -> Any:
        """The output for every record of a TFDataset, as `predict` gives it.

        Args:
            columns: which of the dataset's tensors feed the inputs; the first ones if left out.
        """
        if dataset.batch_size > 0:
            raise InvalidArgumentError(
                f"A TFDataset with batch_size ({dataset.batch_size}) is for training. Make one with batch_per_thread "
                "for prediction."
            )
        chosen = range(len(self._frozen.names.input_names)) if columns is None else columns
        if max(chosen) >= len(dataset.metas):
            raise InvalidArgumentError(
                f"The net has {len(chosen)} inputs, but the records of the dataset have {len(dataset.metas)} arrays."
            )
        records = take_columns(dataset.rows.records(), chosen)
        whole = dataset.has_batch and dataset.hard_code_batch_size
        return dataset.predicted(predict_records(records, self._predictor, dataset.batch_per_thread, whole))

    def _open(self) -> OpenGraph:
        if self._opened is None:
            self._opened = self._frozen.open()
        return self._opened

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_opened": None}


def _is_unbatched(opened: OpenGraph, features: tuple[Any, ...]) -> bool:
    """Whether the graph's inputs are of one row, while those given are rows of a batch."""
    ranks = [tensor.shape.rank for tensor in opened.inputs]
    return all(rank is not None and np.ndim(each) == rank + 1 for rank, each in zip(ranks, features, strict=False))


def _by_row(opened: OpenGraph, features: tuple[Any, ...]) -> list[np.ndarray]:
    rows = [opened.run(row) for row in zip(*features, strict=True)]
    try:
        return [np.stack(column) for column in zip(*rows, strict=True)]
    except ValueError as error:
        raise InvalidArgumentError(
            "the graph gave outputs of different shapes for different records. Expected one shape: pad or pool them."
        ) from error


def _arguments(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]


def _are_arrays(x: Any) -> bool:
    given = x if isinstance(x, list | tuple) else [x]
    return bool(given) and all(isinstance(each, np.ndarray) for each in given)


def _samples_as_records(index: int, samples: Iterator[Any]) -> Iterator[tuple[np.ndarray, ...]]:
    """The flat arrays of samples, features first; records that are arrays or lists of them are taken as they are."""
    for sample in samples:
        tensors = [*getattr(sample, "features", ()), *getattr(sample, "labels", ())]
        yield tuple(tensor.to_ndarray() for tensor in tensors) if tensors else tuple(_arguments(sample))


@contextlib.contextmanager
def _loaded(model_path: str, tag: str, config: Any) -> Iterator[tuple[Any, Any]]:
    """A session with a SavedModel in it, and the signatures."""
    if not is_local(model_path):
        raise NotOfferedError(
            f"A SavedModel is read from a folder of this machine, not from {model_path}. Type: "
            "zoo.common.get_remote_file_to_local(remote, local) first."
        )
    fs, path = filesystem_of(model_path)
    if not (fs.exists(f"{path}/saved_model.pb") or fs.exists(f"{path}/saved_model.pbtxt")):
        raise PathNotFoundError(f"No such SavedModel: {model_path} (there is no saved_model.pb in it)")
    tf = start_here().compat.v1
    graph = tf.Graph()
    with graph.as_default(), tf.Session(graph=graph, config=config) as sess, quiet():
        try:
            loaded = tf.saved_model.load(sess, [tag], path)
        except RuntimeError as error:
            raise InvalidArgumentError(f"The SavedModel in {model_path} has no graph with the tag {tag!r}.") from error
        yield sess, loaded.signature_def


def _signature(signatures: Any, name: str) -> Any:
    if name not in signatures:
        raise InvalidArgumentError(
            f"The SavedModel has no signature {name!r}, but {', '.join(map(repr, sorted(signatures)))}. Pass "
            "signature=..., or inputs=[...] and outputs=[...], names of tensors."
        )
    return signatures[name]


def _names(tensors: Any) -> list[str]:
    """The names of a signature's tensors, in the order of what the signature calls them."""
    return [tensors[name].name for name in sorted(tensors)]


def _tensors(sess: Any, names: Any) -> list[Any]:
    given = _arguments(names)
    try:
        found = [sess.graph.get_tensor_by_name(each) if isinstance(each, str) else each for each in given]
    except (KeyError, ValueError) as error:
        raise InvalidArgumentError(f"The SavedModel's graph has no such tensor: {error}") from error
    return as_tensors(found, "inputs and outputs")
