"""TFDataset: rows of any origin, and the placeholders that stand for them in a TensorFlow graph."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from zoo.orca.context import current_engine, engine_of_spark
from zoo.orca.engine.base import Placement
from zoo.orca.errors import ContextError, InvalidArgumentError, NotOfferedError
from zoo.orca.learn.estimator import as_columns
from zoo.orca.learn.records import as_records, placement_of
from zoo.orca.learn.tf.frozen import graph_mode, placeholders_of
from zoo.orca.learn.tf2.quiet import import_tensorflow
from zoo.tfpark.rows import ArrayRows, FrameRows, RecordRows, Rows, TfDataRows, reader, tfrecord_placement
from zoo.tfpark.tensor_meta import (
    TensorMeta,
    column_metas,
    described_metas,
    named_metas,
    packed_metas,
    take_first,
    taking,
    tensor_meta,
)
from zoo.util import nest

# The graph itself remembers whose its placeholders are, {dataset: tensors}: then they are forgotten together.
_OWNERS = "_zoo_tfpark_datasets"


class TFDataset:
    """Rows for a TensorFlow graph: made by one of the `from_...` methods, used by TFOptimizer, TFPredictor, KerasModel.

    Attributes:
        tensor_structure: the types, names and shapes of the tensors, nested as the elements are.
        batch_size: rows of a training step over all workers; -1 when there is none.
        batch_per_thread: rows of a step of evaluation or prediction; -1 when there is none.
        has_batch: whether tensors have a leading dimension for the rows of a batch.

    Example:
        dataset = TFDataset.from_ndarrays((images, labels), batch_size=64)
        x, y = dataset.tensors
    """

    def __init__(
        self,
        tensor_structure: Any,
        rows: Rows,
        validation: Rows | None = None,
        batch_size: int = -1,
        batch_per_thread: int = -1,
        hard_code_batch_size: bool = False,
        sequential_order: bool = False,
        shuffle: bool = True,
        memory_type: str = "DRAM",  # accepted as published: rows lie where their engine keeps them
    ):
        self.tensor_structure = tensor_structure
        self.rows = rows
        self.validation = validation
        self.hard_code_batch_size = hard_code_batch_size
        self.shuffle = shuffle and not sequential_order
        self._set_batch(batch_size, batch_per_thread)
        self._last_graph: Callable[[], Any] = lambda: None

    def __repr__(self) -> str:
        tensors = ", ".join(
            f"{each.name} {each.dtype.name} {list(each.shape)}" for each in nest.flatten(self.tensor_structure)
        )
        batch = f"batch_size={self.batch_size}" if self.batch_size > 0 else f"batch_per_thread={self.batch_per_thread}"
        return f"TFDataset({tensors}, {batch})"

    @staticmethod
    def from_rdd(
        rdd: Any,
        names: Sequence[str] | None = None,
        shapes: Sequence[Any] | None = None,
        types: Sequence[Any] | None = None,
        batch_size: int = -1,
        batch_per_thread: int = -1,
        hard_code_batch_size: bool = False,
        val_rdd: Any = None,
        features: Any = None,
        labels: Any = None,
        **options: Any,
    ) -> TFDataset:
        """Records of an RDD, of XShards of a record each (`zoo.orca.learn.records.Records`), or of a list.

        Either `features` (and `labels`) say what a record holds, and records are (features, labels) or features alone;
        or `names`, `shapes` and `types` do, and records are lists of arrays, of which the first ones are used.

        Args:
            names: "features" and "labels" if left out.
            types: float32 for each if left out.
            val_rdd: records of the same kind for validation.
            features, labels: (dtype, shape), a list of such pairs, or a dict from names to such pairs.

        Example:
            TFDataset.from_rdd(rdd, features=(tf.float32, [28, 28, 1]), labels=(tf.int32, []), batch_size=64)
        """
        if features is not None:
            structure: Any = described_metas(features, labels)
            take = taking(labels is not None, structure)
        else:
            structure = named_metas(names, shapes, types)
            take = take_first
        read = reader(nest.flatten(structure), take)
        validation = None if val_rdd is None else RecordRows(placement_of(val_rdd, "val_rdd"), read)
        rows = RecordRows(placement_of(rdd), read)
        return TFDataset(structure, rows, validation, batch_size, batch_per_thread, hard_code_batch_size, **options)

    @staticmethod
    def from_ndarrays(
        tensors: Any,
        batch_size: int = -1,
        batch_per_thread: int = -1,
        hard_code_batch_size: bool = False,
        val_tensors: Any = None,
        **options: Any,
    ) -> TFDataset:
        """Rows of arrays, however they are nested; float64 becomes float32.

        Example: ``TFDataset.from_ndarrays((x, y), batch_size=64, val_tensors=(x_val, y_val))``
        """
        tf = graph_mode()
        arrays = _checked_arrays(tensors, "tensors")
        structure = packed_metas(tensors, [(tf.as_dtype(each.dtype), each.shape[1:]) for each in arrays])
        validation = None if val_tensors is None else ArrayRows(_checked_arrays(val_tensors, "val_tensors"))
        rows = ArrayRows(arrays)
        return TFDataset(structure, rows, validation, batch_size, batch_per_thread, hard_code_batch_size, **options)

    @staticmethod
    def from_dataframe(
        df: Any,
        feature_cols: Sequence[str],
        labels_cols: Sequence[str] | None = None,
        batch_size: int = -1,
        batch_per_thread: int = -1,
        hard_code_batch_size: bool = False,
        validation_df: Any = None,
        **options: Any,
    ) -> TFDataset:
        """Rows of a Spark DataFrame: a tensor for each column (numbers, arrays of numbers, ML vectors).

        The first row is looked at, for the lengths of arrays.

        Example: ``TFDataset.from_dataframe(df, feature_cols=["a", "b"], labels_cols=["label"], batch_size=64)``
        """
        columns = as_columns(feature_cols, labels_cols)
        structure = column_metas(df, columns.features, columns.labels)
        validation = None if validation_df is None else FrameRows(validation_df, columns.names)
        rows = FrameRows(df, columns.names)
        return TFDataset(structure, rows, validation, batch_size, batch_per_thread, hard_code_batch_size, **options)

    @staticmethod
    def from_tf_data_dataset(
        dataset: Any,
        batch_size: int = -1,
        batch_per_thread: int = -1,
        hard_code_batch_size: bool = False,
        validation_dataset: Any = None,
        remove_checking: bool = False,
        batch_outside: bool = False,
        inter_threads: int | None = None,
        intra_threads: int | None = None,
        auto_shard_files: bool = False,
        **options: Any,
    ) -> TFDataset:
        """Elements of a tf.data.Dataset that is neither batched nor repeated, read on the workers; not for prediction.

        Args:
            auto_shard_files: give each worker some of the files, where the dataset reads files.
            remove_checking, batch_outside, inter_threads, intra_threads: accepted as published.

        Example: ``TFDataset.from_tf_data_dataset(tf.data.Dataset.from_tensor_slices((x, y)), batch_size=64)``
        """
        tf = import_tensorflow("A tf.data.Dataset")
        specs = tf.data.experimental.get_structure(dataset)
        leaves = nest.flatten(specs)
        if not all(isinstance(each, tf.TensorSpec) for each in leaves):
            raise InvalidArgumentError(f"Expected a dataset of dense tensors, got elements of {specs!r}.")
        structure = packed_metas(specs, [(each.dtype, each.shape.as_list()) for each in leaves])
        validation = None if validation_dataset is None else TfDataRows(validation_dataset, len(leaves))
        rows = TfDataRows(dataset, len(leaves))
        made = TFDataset(structure, rows, validation, batch_size, batch_per_thread, hard_code_batch_size, **options)
        made.auto_shard_files = auto_shard_files
        return made

    @staticmethod
    def from_string_rdd(
        string_rdd: Any,
        batch_size: int = -1,
        batch_per_thread: int = -1,
        hard_code_batch_size: bool = False,
        validation_string_rdd: Any = None,
        **options: Any,
    ) -> TFDataset:
        """Records that are texts: one tensor of strings.

        Example: ``TFDataset.from_string_rdd(sc.parallelize(["123", "456"]), batch_per_thread=2)``
        """
        return _of_texts(
            placement_of(string_rdd, "string_rdd"),
            None if validation_string_rdd is None else placement_of(validation_string_rdd, "validation_string_rdd"),
            (batch_size, batch_per_thread, hard_code_batch_size),
            options,
        )

    @staticmethod
    def from_bytes_rdd(
        bytes_rdd: Any,
        batch_size: int = -1,
        batch_per_thread: int = -1,
        hard_code_batch_size: bool = False,
        validation_bytes_rdd: Any = None,
        **options: Any,
    ) -> TFDataset:
        """Records that are bytes: one tensor of strings.

        Example: ``TFDataset.from_bytes_rdd(sc.parallelize([b"123", b"456"]), batch_per_thread=2)``
        """
        return _of_texts(
            placement_of(bytes_rdd, "bytes_rdd"),
            None if validation_bytes_rdd is None else placement_of(validation_bytes_rdd, "validation_bytes_rdd"),
            (batch_size, batch_per_thread, hard_code_batch_size),
            options,
        )

    @staticmethod
    def from_tfrecord_file(
        sc: Any,
        file_path: Any,
        batch_size: int = -1,
        batch_per_thread: int = -1,
        hard_code_batch_size: bool = False,
        validation_file_path: Any = None,
        **options: Any,
    ) -> TFDataset:
        """The serialized records of TFRecord files (a file, a folder, a pattern or a list), as one tensor of strings.

        Args:
            sc: the SparkContext; None reads on the current engine.

        Example: ``TFDataset.from_tfrecord_file(sc, "/data/train-*.tfrecord", batch_size=64)``
        """
        engine = current_engine() if sc is None else engine_of_spark()
        return _of_texts(
            tfrecord_placement(file_path, engine),
            None if validation_file_path is None else tfrecord_placement(validation_file_path, engine),
            (batch_size, batch_per_thread, hard_code_batch_size),
            options,
        )

    @staticmethod
    def from_image_set(
        image_set: Any,
        image: Any,
        label: Any = None,
        batch_size: int = -1,
        batch_per_thread: int = -1,
        hard_code_batch_size: bool = False,
        validation_image_set: Any = None,
        **options: Any,
    ) -> TFDataset:
        """Samples of an image set (ImageSetToSample makes them); image and label are (dtype, shape).

        Predictions for an ImageSet come as an ImageSet, for `get_predict()`.
        """
        sets = (image_set, validation_image_set)
        made = _of_samples(sets, image, label, (batch_size, batch_per_thread, hard_code_batch_size), options)
        made.image_set = image_set if hasattr(image_set, "with_predictions") else None
        return made

    @staticmethod
    def from_feature_set(
        dataset: Any,
        features: Any,
        labels: Any = None,
        batch_size: int = -1,
        batch_per_thread: int = -1,
        hard_code_batch_size: bool = False,
        validation_dataset: Any = None,
        **options: Any,
    ) -> TFDataset:
        """Samples of a feature set, for training; features and labels are (dtype, shape), a list or a dict of them."""
        if batch_size <= 0:
            raise InvalidArgumentError("from_feature_set is for training: give batch_size, the rows of a step.")
        sets = (dataset, validation_dataset)
        return _of_samples(sets, features, labels, (batch_size, batch_per_thread, hard_code_batch_size), options)

    @staticmethod
    def from_text_set(
        text_set: Any,
        text: Any,
        label: Any = None,
        batch_size: int = -1,
        batch_per_thread: int = -1,
        hard_code_batch_size: bool = False,
        validation_text_set: Any = None,
        **options: Any,
    ) -> TFDataset:
        """Samples of a text set; text and label are (dtype, shape)."""
        sets = (text_set, validation_text_set)
        return _of_samples(sets, text, label, (batch_size, batch_per_thread, hard_code_batch_size), options)

    #: The ImageSet that the records come from, where they do.
    image_set: Any = None

    def predicted(self, predictions: Placement) -> Any:
        """What users are given for the records' predictions: an ImageSet where these come from one, else an RDD."""
        return as_records(predictions) if self.image_set is None else self.image_set.with_predictions(predictions)

    #: Whether workers are given files of a tf.data.Dataset instead of records.
    auto_shard_files = False

    @property
    def tensors(self) -> Any:
        """Placeholders in the default graph, nested as the elements are; made when a graph is first asked for them.

        Where there is no graph, they are those of the last one.
        """
        tf = graph_mode()
        graph = self._last_graph() if tf.executing_eagerly() else tf.get_default_graph()
        if graph is None:
            raise ContextError(
                "The tensors of a TFDataset are placeholders of a graph, but TensorFlow executes eagerly here. "
                "Type tf.compat.v1.disable_eager_execution() at the top of the script, or build the graph in "
                "`with tf.Graph().as_default():`"
            )
        return self.tensors_in(graph)

    def tensors_in(self, graph: Any) -> Any:
        """`tensors` of a graph, whichever is the default one."""
        owners = getattr(graph, _OWNERS, None)
        if owners is None:
            owners = {}
            setattr(graph, _OWNERS, owners)
        if self not in owners:
            tf = graph_mode()
            with graph.as_default():
                made = [tf.placeholder(each.dtype, self._shape(each), each.name) for each in self.metas]
            owners[self] = nest.pack_sequence_as(self.tensor_structure, made)
            self._last_graph = weakref.ref(graph)
        return owners[self]

    @property
    def feature_tensors(self) -> Any:
        """The placeholders of the features, of a dataset of (features, labels)."""
        self._check_pair("feature_tensors")
        return self.tensors[0]

    @property
    def label_tensors(self) -> Any:
        """The placeholders of the labels, of a dataset of (features, labels)."""
        self._check_pair("label_tensors")
        return self.tensors[1]

    @property
    def metas(self) -> list[TensorMeta]:
        """The flat tensor_structure."""
        return nest.flatten(self.tensor_structure)

    @property
    def has_labels(self) -> bool:
        """Whether elements are (features, labels)."""
        return isinstance(self.tensor_structure, tuple) and len(self.tensor_structure) == 2

    def get_num_partitions(self) -> int:
        """In how many partitions the rows lie."""
        return self.rows.num_partitions

    def need_batch_size(self, what: str) -> int:
        """The batch size for training, or a ValueError that says for what it must be given."""
        if self.batch_size <= 0:
            raise InvalidArgumentError(f"The batch_size of TFDataset must be specified when used {what}.")
        return self.batch_size

    def need_batch_per_thread(self, what: str) -> int:
        """The batch size for evaluation and prediction, or a ValueError that says for what it must be given."""
        if not self.has_batch or self.batch_per_thread <= 0:
            raise InvalidArgumentError(f"The batch_per_thread of TFDataset must be specified when used {what}.")
        return self.batch_per_thread

    def _set_batch(self, batch_size: int, batch_per_thread: int) -> None:
        if batch_size > 0 and batch_per_thread > 0:
            raise InvalidArgumentError(
                f"batch_size ({batch_size}) is for training and batch_per_thread ({batch_per_thread}) for evaluation "
                "and prediction: give one of them."
            )
        cores = self.rows.engine.cores
        if batch_size > 0 and batch_size % cores:
            raise InvalidArgumentError(
                f"batch_size should be a multiple of total core number, but got batch_size: {batch_size} where total "
                f"core number is {cores}."
            )
        self.has_batch = batch_size > 0 or batch_per_thread > 0
        self.batch_size = batch_size
        self.batch_per_thread = batch_per_thread if self.has_batch else 1

    def _shape(self, meta: TensorMeta) -> list[int | None]:
        if not self.has_batch:
            return meta.shape
        share = self.batch_size // self.rows.engine.nodes if self.batch_size > 0 else self.batch_per_thread
        return [share if self.hard_code_batch_size else None, *meta.shape]

    def _check_pair(self, what: str) -> None:
        if not self.has_labels:
            raise InvalidArgumentError(
                f"{what} needs elements of (features, labels), but they are {self.tensor_structure!r}. Use tensors."
            )


def dataset_of(tensors: Sequence[Any], given: Sequence[Any] = ()) -> TFDataset:
    """The TFDataset whose placeholders some tensors are computed from.

    Args:
        given: tensors that get their values from elsewhere.
    """
    needed = {each.name for each in placeholders_of(tensors, given)}
    owners = getattr(tensors[0].graph, _OWNERS, {})
    found = [each for each, own in owners.items() if any(mine.name in needed for mine in nest.flatten(own))]
    if len(found) != 1:
        names = ", ".join(tensor.name for tensor in tensors)
        came = "none" if not found else f"{len(found)} of them"
        raise InvalidArgumentError(
            f"Expected {names} to be computed from the tensors of one TFDataset, got {came}. Use dataset.tensors as "
            "the model's input, or pass inputs=... and dataset=..."
        )
    return found[0]


def columns_of(dataset: TFDataset, targets: Sequence[Any], inputs: Any = None) -> tuple[list[Any], list[int]]:
    """The tensors to feed for some targets, and the numbers of the dataset's tensors that feed them.

    Args:
        inputs: tensors that the dataset's feed one after the other; by default those of the dataset itself that the
            targets are computed from.
    """
    if inputs is None:
        needed = {each.name for each in placeholders_of(targets)}
        flat = nest.flatten(dataset.tensors_in(targets[0].graph))
        chosen = [number for number, tensor in enumerate(flat) if tensor.name in needed]
        return [flat[number] for number in chosen], chosen
    given = nest.flatten(inputs)
    if len(given) > len(dataset.metas):
        raise InvalidArgumentError(
            f"Expected a tensor of the dataset for each of inputs, but there are {len(given)} inputs and "
            f"{len(dataset.metas)} tensors."
        )
    return given, list(range(len(given)))


def _checked_arrays(tensors: Any, what: str) -> list[np.ndarray]:
    arrays = [np.asarray(each) for each in nest.flatten(tensors)]
    arrays = [each.astype(np.float32) if each.dtype == np.float64 else each for each in arrays]
    lengths = {each.shape[0] if each.ndim else None for each in arrays}
    if len(lengths) != 1 or None in lengths:
        raise InvalidArgumentError(
            f"Expected {what} to be arrays with one row for each record, all with as many rows, got shapes "
            f"{[each.shape for each in arrays]}."
        )
    return [_as_bytes(each) if each.dtype.kind == "U" else each for each in arrays]


def _as_bytes(array: np.ndarray) -> np.ndarray:
    return np.char.encode(array, "utf-8").astype(object)


def _of_texts(placement: Any, validation: Any, batch: tuple[int, int, bool], options: dict[str, Any]) -> TFDataset:
    meta = tensor_meta(graph_mode().string, "input0", [])
    read = reader([meta], lambda text: [text])
    checked = None if validation is None else RecordRows(validation, read)
    return TFDataset(meta, RecordRows(placement, read), checked, *batch, **options)


def _of_samples(
    sets: tuple[Any, Any], features: Any, labels: Any, batch: tuple[int, int, bool], options: dict[str, Any]
) -> TFDataset:
    """Samples out of an RDD, XShards or list of them, an ImageSet, a FeatureSet, or what has such an RDD as `rdd`."""
    structure = described_metas(features, labels)
    read = reader(nest.flatten(structure), _arrays_of_sample)
    rows, validation = (None if each is None else RecordRows(_samples(each), read) for each in sets)
    return TFDataset(structure, rows, validation, *batch, **options)


def _samples(given: Any) -> Any:
    if callable(getattr(given, "samples", None)):
        return given.samples()
    records = getattr(given, "rdd", given)
    try:
        return placement_of(records)
    except InvalidArgumentError as error:
        raise NotOfferedError(
            f"A {type(given).__name__} cannot be read here. Give its samples: an RDD, XShards or a list of "
            "zoo.common.Sample."
        ) from error


def _arrays_of_sample(sample: Any) -> list[np.ndarray]:
    return [tensor.to_ndarray() for tensor in [*sample.features, *sample.labels]]
