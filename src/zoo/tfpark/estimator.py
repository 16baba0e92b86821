"""TFEstimator: a model function, trained, evaluated and run on TFDatasets, as `tf.estimator` used to do."""

from __future__ import annotations

import contextlib
import inspect
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from zoo.orca.errors import InvalidArgumentError
from zoo.orca.learn.estimator import check_num_steps, check_path
from zoo.orca.learn.tf.frozen import graph_mode
from zoo.orca.learn.tf2.quiet import start_here
from zoo.orca.learn.trigger import MaxEpoch, MaxIteration
from zoo.tfpark.metric_tensors import method_of
from zoo.tfpark.tf_dataset import TFDataset
from zoo.tfpark.tf_optimizer import TFOptimizer, measure
from zoo.tfpark.tf_predictor import TFPredictor
from zoo.util.tf import get_checkpoint_state, load_known_variables, load_tf_checkpoint, save_tf_checkpoint

CHECKPOINT = "model.ckpt"


class ModeKeys:
    """What a model function is called for."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


@dataclass(frozen=True)
class EstimatorSpec:
    """What a model function returns; anything else with these attributes will do.

    Attributes:
        predictions: a tensor, or a dict of tensors.
        loss: a scalar tensor, for training.
        train_op: what `ZooOptimizer(...).minimize(loss)` gave, for training.
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None


class TFEstimator:
    """Trains, evaluates and runs what a model function builds; each call builds a graph of its own.

    Example:
        def model_fn(features, labels, mode):
            logits = tf.layers.dense(features, 10)
            if mode == "infer":
                return EstimatorSpec(mode, predictions=logits)
            loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
            train_op = ZooOptimizer(tf.train.AdamOptimizer()).minimize(loss)
            return EstimatorSpec(mode, logits, loss, train_op)

        estimator = TFEstimator.from_model_fn(model_fn, model_dir="/tmp/model")
        estimator.train(lambda mode: TFDataset.from_ndarrays((x, y), batch_size=64), steps=100)
    """

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: str | None = None,
        config: Any = None,
        params: dict[str, Any] | None = None,
        warm_start_from: str | None = None,
    ):
        if not callable(model_fn):
            raise InvalidArgumentError(f"Expected model_fn to be a function, got {model_fn!r}.")
        self._model_fn = model_fn
        self._config = config
        self._params = params
        self._warm_start_from = warm_start_from
        if model_dir is None:
            model_dir = tempfile.mkdtemp(prefix="orca-tfestimator-")
            weakref.finalize(self, shutil.rmtree, model_dir, ignore_errors=True)
        self.model_dir = check_path(model_dir, "model_dir")

    def __repr__(self) -> str:
        return f"TFEstimator({getattr(self._model_fn, '__name__', self._model_fn)!r}, model_dir={self.model_dir!r})"

    @classmethod
    def from_model_fn(
        cls,
        model_fn: Callable[..., Any],
        model_dir: str | None = None,
        config: Any = None,
        params: dict[str, Any] | None = None,
        warm_start_from: str | None = None,
    ) -> TFEstimator:
        """An estimator of a model function.

        Args:
            model_fn: `model_fn(features, labels, mode)`, which may also take `params` and `config`, and returns an
                EstimatorSpec; mode is "train", "eval" or "infer".
            model_dir: where checkpoints go; a temporary folder if left out.
            warm_start_from: a checkpoint, or a folder of some, with the first values of the variables; those that it
                does not have are initialised.
        """
        return cls(model_fn, model_dir, config, params, warm_start_from)

    def train(
        self, input_fn: Callable[[str], TFDataset], steps: int | None = None, session_config: Any = None
    ) -> TFEstimator:
        """Train on `input_fn("train")` for so many steps, or one epoch, from the latest checkpoint on.

        A checkpoint of the result goes into model_dir.
        """
        limit = MaxEpoch(1) if check_num_steps(steps) is None else MaxIteration(steps)
        with self._built(ModeKeys.TRAIN, input_fn) as (dataset, spec):
            dataset.need_batch_size("for training")
            _need(spec, "loss", "train_op")
            with self._session(self._latest()) as (sess, saver):
                optimizer = TFOptimizer.from_train_op(
                    spec.train_op, spec.loss, dataset=dataset, sess=sess, session_config=session_config
                )
                start = _count(sess)
                # The counters of this optimizer start anew: without this each call would take the same first batches.
                optimizer.estimator._seed += start
                optimizer.optimize(limit)
                step = _count(sess, at_least=start + optimizer.estimator.iterations)
                save_tf_checkpoint(sess, f"{self.model_dir}/{CHECKPOINT}-{step}", saver)
        return self

    def evaluate(
        self,
        input_fn: Callable[[str], TFDataset],
        eval_methods: Sequence[Any],
        steps: int | None = None,
        checkpoint_path: str | None = None,
    ) -> dict[str, float]:
        """What validation methods say of predictions and labels: {"Top1Accuracy": 0.97}.

        Args:
            eval_methods: names ("acc", "accuracy", "top5acc", "mae", "auc", "loss"), or validation methods.
            steps: how many batches to measure; all if left out.
            checkpoint_path: the values to use; the latest of model_dir if left out.
        """
        methods = [method_of(each) for each in _as_list(eval_methods)]
        with self._built(ModeKeys.EVAL, input_fn) as (dataset, spec):
            _need(spec, "predictions")
            with self._session(checkpoint_path or self._latest(), is_needed=True) as (sess, _):
                output = _one_tensor(spec.predictions)
                return measure(sess, dataset, methods, output, dataset.label_tensors, spec.loss, check_num_steps(steps))

    def predict(
        self,
        input_fn: Callable[[str], TFDataset],
        predict_keys: Sequence[str] | None = None,
        checkpoint_path: str | None = None,
    ) -> Any:
        """The predictions for every record of `input_fn("infer")`: arrays, or dicts of them where predictions is one.

        It is an RDD on Spark, and `zoo.orca.learn.records.Records`, which has collect(), on other engines; for images
        of an ImageSet it is an ImageSet, for `get_predict()`.

        Args:
            predict_keys: which of a dict of predictions.
            checkpoint_path: the values to use; the latest of model_dir if left out.
        """
        with self._built(ModeKeys.PREDICT, input_fn) as (dataset, spec):
            _need(spec, "predictions")
            with self._session(checkpoint_path or self._latest(), is_needed=True) as (sess, _):
                if not isinstance(spec.predictions, dict):
                    return TFPredictor(sess, spec.predictions, dataset=dataset).predict()
                keys = _chosen(spec.predictions, predict_keys)
                found = TFPredictor(sess, [spec.predictions[key] for key in keys], dataset=dataset).predict()

        def named(record: Any) -> dict[str, Any]:
            return dict(zip(keys, record if len(keys) > 1 else [record], strict=True))

        return found.map(named) if dataset.image_set is None else found.map_predict(named)

    @contextlib.contextmanager
    def _built(self, mode: str, input_fn: Callable[[str], TFDataset]) -> Iterator[tuple[TFDataset, Any]]:
        """A graph with what the model function builds for a dataset."""
        tf = start_here().compat.v1
        with tf.Graph().as_default():
            tf.train.get_or_create_global_step()
            dataset = input_fn(mode)
            if not isinstance(dataset, TFDataset):
                raise InvalidArgumentError(f"Expected input_fn to return a TFDataset, got a {type(dataset).__name__}.")
            if mode == ModeKeys.TRAIN:
                dataset.need_batch_size("for training")
            features = dataset.feature_tensors if dataset.has_labels else dataset.tensors
            labels = dataset.label_tensors if dataset.has_labels and mode != ModeKeys.PREDICT else None
            yield dataset, self._call(features, labels, mode)

    def _call(self, features: Any, labels: Any, mode: str) -> Any:
        takes = inspect.signature(self._model_fn).parameters
        given = {"labels": labels, "mode": mode, "params": self._params or {}, "config": self._config}
        return self._model_fn(features, **{name: value for name, value in given.items() if name in takes})

    @contextlib.contextmanager
    def _session(self, checkpoint: str | None, is_needed: bool = False) -> Iterator[tuple[Any, Any]]:
        """A session of the default graph with the values of a checkpoint, or those to start from, and a saver."""
        if checkpoint is None and self._warm_start_from is None and is_needed:
            raise InvalidArgumentError(
                f"There is no checkpoint in {self.model_dir}. Call train first, or pass checkpoint_path=..."
            )
        tf = graph_mode()
        saver = tf.train.Saver()
        with tf.Session() as sess:
            sess.run([tf.global_variables_initializer(), tf.local_variables_initializer(), tf.tables_initializer()])
            if checkpoint is not None:
                load_tf_checkpoint(sess, _newest(checkpoint), saver)
            elif self._warm_start_from is not None:
                load_known_variables(sess, _newest(self._warm_start_from))
            yield sess, saver

    def _latest(self) -> str | None:
        state = get_checkpoint_state(self.model_dir)
        return None if state is None else state.model_checkpoint_path


def _newest(checkpoint: str) -> str:
    """A checkpoint itself, or the newest one of a folder."""
    state = get_checkpoint_state(checkpoint)
    return checkpoint if state is None else state.model_checkpoint_path


def _count(sess: Any, at_least: int = 0) -> int:
    """The global step, moved on where the train op does not count it itself."""
    step = graph_mode().train.get_global_step()
    done = int(sess.run(step))
    if done < at_least:
        sess.run(graph_mode().assign(step, at_least))
    return max(done, at_least)


def _need(spec: Any, *names: str) -> None:
    for name in names:
        if getattr(spec, name, None) is None:
            raise InvalidArgumentError(
                f"Expected model_fn to return an EstimatorSpec with {name} for mode "
                f"{getattr(spec, 'mode', None)!r}, got {spec!r:.200}."
            )


def _one_tensor(predictions: Any) -> Any:
    if not isinstance(predictions, dict):
        return predictions
    if len(predictions) == 1:
        return next(iter(predictions.values()))
    raise InvalidArgumentError(
        f"evaluate measures one tensor of predictions, but there are {', '.join(map(repr, predictions))}. Return that "
        'one alone for mode "eval".'
    )


def _chosen(predictions: dict[str, Any], keys: Sequence[str] | None) -> list[str]:
    for key in keys or ():
        if key not in predictions:
            raise InvalidArgumentError(f"There is no prediction {key!r}, but {', '.join(map(repr, predictions))}.")
    return list(keys or predictions)


def _as_list(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]
