"""What cannot work with a graph is said at once, in the words that existing code looks for, and by name."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from tf_graphs import classifier, tf, v1

from learning import Rows
from zoo.orca.data import XShards
from zoo.orca.errors import (
    BatchError,
    InvalidArgumentError,
    NotOfferedError,
    PreconditionError,
)
from zoo.orca.learn.optimizers import LBFGS
from zoo.orca.learn.tf.estimator import Estimator
from zoo.orca.learn.tf.parcel import Clip, Fed

ROWS = Rows(6)
DATA = (ROWS.x, ROWS.classes)


@pytest.fixture
def net():
    return classifier()


@pytest.fixture
def make(net):
    """Estimators that are shut down after the test."""
    made = []

    def estimator(**options):
        given = {
            "inputs": net.x,
            "labels": net.y,
            "outputs": net.logits,
            "loss": net.loss,
            "metrics": {"accuracy": net.accuracy},
            "optimizer": v1.train.AdamOptimizer(),
        }
        made.append(Estimator.from_graph(**(given | options)))
        return made[-1]

    yield estimator
    for each in made:
        each.shutdown()


class TestMaking:
    def test_what_is_no_tensor_or_no_optimizer(self, make, net):
        for options, message in (
            ({"inputs": None}, "inputs must be given"),
            ({"inputs": "x"}, "inputs must be a tensor of a graph"),
            ({"loss": 3.0}, "loss must be a tensor of a graph"),
            ({"loss": net.logits}, r"loss must be a scalar.*tf\.reduce_mean"),
            ({"metrics": [net.accuracy]}, "metrics must be a dict"),
            ({"metrics": {"a": net.logits}}, "metrics must be a dict of scalar tensors"),
            ({"optimizer": "adam"}, r"optimizer must be one of tensorflow\.compat\.v1\.train"),
            ({"updates": ["op"]}, "updates must be operations"),
            ({"clip_norm": 0}, "clip_norm must be a number above 0"),
            ({"clip_value": (1, -1)}, "clip_value must be"),
            ({"seed": "1"}, "seed must be a whole number"),
            ({"outputs": classifier().logits}, "is of another graph than x:0"),
            ({"sess": v1.Session(graph=tf.Graph())}, "sess must be a .*Session of the graph"),
        ):
            with pytest.raises(InvalidArgumentError, match=message):
                make(**options)
        with pytest.raises(AssertionError, match='backend must be "bigdl"'):
            make(backend="horovod")

    def test_an_input_that_nothing_depends_on_is_named(self, make, net):
        with net.graph.as_default():
            other = v1.placeholder(tf.float32, (None,), name="other")
        with pytest.raises(InvalidArgumentError, match="other:0 is among inputs, but neither"):
            make(inputs=[net.x, other])
        with pytest.raises(InvalidArgumentError, match="other:0 is among labels"):
            make(labels=[net.y, other])

    def test_eager_tensors_are_none_of_a_graph(self):
        with pytest.raises(InvalidArgumentError, match="inputs must be a tensor of a graph"):
            Estimator.from_graph(inputs=tf.constant([1.0]))


@pytest.mark.engines("local")
@pytest.mark.usefixtures("engine")
class TestTraining:
    def test_what_is_missing_is_named(self, make, net):
        with pytest.raises(PreconditionError, match="loss must be given for fit"):
            make(loss=None).fit(DATA)
        with pytest.raises(PreconditionError, match="optimizer must be given for fit"):
            make(optimizer=None).fit(DATA)
        with pytest.raises(PreconditionError, match="metrics must be given for evaluate"):
            make(metrics=None).evaluate(DATA)
        with pytest.raises(PreconditionError, match="outputs must be given for predict"):
            make(outputs=None).predict(ROWS.x)

    def test_a_placeholder_that_nothing_is_fed_to_is_named(self):
        net = classifier(dropout=True)
        est = Estimator.from_graph(
            inputs=net.x, labels=net.y, outputs=net.logits, loss=net.loss, metrics={"accuracy": net.accuracy},
            optimizer=v1.train.AdamOptimizer(),
        )  # fmt: skip
        with pytest.raises(InvalidArgumentError, match=r"the loss depends on the placeholder rate:0.*feed_dict={rate:"):
            est.fit(DATA)
        with pytest.raises(InvalidArgumentError, match="metric 'accuracy' depends on the placeholder rate:0"):
            est.evaluate(DATA)
        with pytest.raises(InvalidArgumentError, match="outputs depend on the placeholder rate:0"):
            est.predict(ROWS.x)
        for wrong in (0.5, {net.rate.ref(): 0.5}):
            with pytest.raises(InvalidArgumentError, match="feed_dict must"):
                est.fit(DATA, feed_dict=wrong)
        est.shutdown()

    def test_nothing_to_train(self):
        with tf.Graph().as_default():
            x = v1.placeholder(tf.float32, (None, 4))
            frozen = v1.get_variable("frozen", (4, 1), trainable=False)
            est = Estimator.from_graph(inputs=x, loss=tf.reduce_mean(x @ frozen), optimizer=v1.train.AdamOptimizer())
            variable = v1.get_variable("v", (4, 1))
            stuck = Estimator.from_graph(
                inputs=x, loss=tf.reduce_mean(tf.round(x @ variable)), optimizer=v1.train.AdamOptimizer()
            )
        with pytest.raises(PreconditionError, match="depends on no trainable variable"):
            est.fit(ROWS.x)
        with pytest.raises(PreconditionError, match="has no gradient over any"):
            stuck.fit(ROWS.x)
        est.shutdown()
        stuck.shutdown()

    def test_what_cannot_go_to_the_workers(self, make, net):
        with net.graph.as_default():
            doubled = v1.py_func(lambda x: 2 * x, [net.logits], tf.float64)
            est = make(outputs=doubled)
        with pytest.raises(NotOfferedError, match="calls a Python function"):
            est.predict(ROWS.x)
        with pytest.raises(NotOfferedError, match="LBFGS"):
            make(optimizer=LBFGS()).fit(DATA)
        with pytest.raises(NotImplementedError, match=r"est\.sess"):
            est.get_model()
        for setter, arguments in (
            ("clear_gradient_clipping", ()),
            ("set_constant_gradient_clipping", (0.1, 1.2)),
            ("set_l2_norm_gradient_clipping", (1.0,)),
        ):
            with pytest.raises(NotImplementedError, match="clip_norm"):
                getattr(est, setter)(*arguments)


@pytest.mark.engines("local")
@pytest.mark.usefixtures("engine")
class TestData:
    def test_columns_in_the_published_words(self, make):
        frame = pd.DataFrame({"a": [1.0], "b": [2]})
        for data in (frame, XShards.partition(frame, 1)):
            for call, word in (("fit", "training"), ("evaluate", "evaluation")):
                act = getattr(make(), call)
                with pytest.raises(AssertionError, match=f"feature columns is None; it should not be None in {word}"):
                    act(data, label_cols=["b"])
                with pytest.raises(AssertionError, match=f"label columns is None; it should not be None in {word}"):
                    act(data, feature_cols=["a"])
            with pytest.raises(AssertionError, match="feature columns is None; it should not be None in prediction"):
                make().predict(data)
        with pytest.raises(ValueError, match="train data and validation data should be both"):
            make().fit(XShards.partition({"x": ROWS.x, "y": ROWS.classes}, 2), validation_data=DATA)

    def test_datasets_that_are_no_records(self, make):
        records = tf.data.Dataset.from_tensor_slices(DATA)
        for kind in (ValueError, AssertionError):
            with pytest.raises(kind, match=r"elements are batches.*batch_size"):
                make().fit(records.batch(2))
            with pytest.raises(kind, match=r"repeats its records for ever.*epochs"):
                make().fit(records.repeat())
        with pytest.raises(AssertionError, match=r"got a tf\.data\.Dataset"):
            make().predict(records)

    def test_shapes_and_numbers_that_do_not_fit(self, make):
        with pytest.raises(BatchError, match=r"x:0 takes rows of the shape \(4\), but data gives .*\(2,"):
            make().fit((ROWS.x[:, :2], ROWS.classes))
        with pytest.raises(InvalidArgumentError, match=r"1 input\(s\) and 1 label\(s\) \(x:0, y:0\).*gives 3 array"):
            make().fit(([ROWS.x, ROWS.x], ROWS.classes))
        with pytest.raises(BatchError, match=r"the graph cannot take validation_data.*label"):
            make().fit(DATA, validation_data=(ROWS.x, ROWS.classes + 9))
        with pytest.raises(InvalidArgumentError, match="batch_size"):
            make().fit(DATA, batch_size=0)
        with pytest.raises(InvalidArgumentError, match="session_config must be"):
            make().fit(DATA, session_config={"threads": 1})


class TestFed:
    """How rows become what a placeholder takes."""

    @pytest.mark.parametrize(
        ("shape", "given", "found"),
        [
            ((None,), (3,), (3,)),
            ((None, 1), (3,), (3, 1)),
            ((None, None), (3,), (3, 1)),
            ((None,), (3, 1), (3,)),
            ((None, 2), (3, 2), (3, 2)),
            (None, (3, 2, 5), (3, 2, 5)),
        ],
    )
    def test_shapes(self, shape, given, found):
        taken = Fed("x:0", "int32", shape).take(np.ones(given, np.int64))
        assert (taken.shape, taken.dtype) == (found, np.int32)

    @pytest.mark.parametrize(("shape", "given"), [((None, 2), (3, 3)), ((None, 2), (3,)), ((4, 2), (3, 2)), ((), (3,))])
    def test_shapes_that_do_not_fit(self, shape, given):
        with pytest.raises(BatchError, match="x:0"):
            Fed("x:0", "float32", shape).take(np.ones(given))

    def test_text_and_numbers_are_not_mixed_up(self):
        assert Fed("x:0", "object", (None,)).take(np.array(["a", "b"])).dtype == object
        with pytest.raises(BatchError, match="takes text, but data gives float64"):
            Fed("x:0", "object", (None,)).take(np.ones(2))
        with pytest.raises(BatchError, match="takes float32, but data gives text"):
            Fed("x:0", "float32", (None,)).take(np.array(["a"]))


def test_clipping_is_what_tensorflow_does():
    random = np.random.default_rng(0)
    gradients = [random.normal(size=(4, 3)).astype(np.float32), random.normal(size=()).astype(np.float32)]
    for clip, expected in (
        (Clip(tensor_norm=0.5), [tf.clip_by_norm(each, 0.5).numpy() for each in gradients]),
        (Clip(norm=0.5), [each.numpy() for each in tf.clip_by_global_norm(gradients, 0.5)[0]]),
        (Clip(low=-0.1, high=0.2), [tf.clip_by_value(each, -0.1, 0.2).numpy() for each in gradients]),
        (Clip(norm=1e6), gradients),
    ):
        clipped = [np.array(each) for each in gradients]
        clip.apply(clipped)
        for found, wanted in zip(clipped, expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5)
