"""Keras models whose creators use Horovod themselves, as its documents show it."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import numpy as np
import pytest

from zoo.orca.errors import NotOfferedError
from zoo.orca.learn.tf2 import Estimator
from zoo.orca.learn.tf2.callbacks import KerasCallbacks, adapt


def is_built() -> bool:
    """Whether Horovod is there for TensorFlow too; it is not imported to find out."""
    found = importlib.util.find_spec("horovod")
    places = [] if found is None else found.submodule_search_locations or []
    return any(importlib.machinery.PathFinder.find_spec("mpi_lib", [f"{place}/tensorflow"]) for place in places)


needs_tensorflow = pytest.mark.skipif(not is_built(), reason="Horovod is not built for TensorFlow: make horovod-tf")

ROWS, BATCH = 22, 8
X = np.random.default_rng(5).normal(size=(ROWS, 3)).astype(np.float32)
Y = X.sum(axis=1, keepdims=True)


def make_model(config):
    import keras

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)])
    for number, each in enumerate(model.weights):
        each.assign(np.sin(np.arange(each.value.numpy().size) + number).reshape(each.shape))
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    if config.get("horovod"):
        import horovod.tensorflow.keras as hvd

        hvd.init()
        rank = np.array([hvd.rank()], np.float32)
        if not np.array_equal(hvd.allgather(rank), np.arange(hvd.size())):
            raise AssertionError("Horovod does not know its ranks")
        optimizer = hvd.DistributedOptimizer(optimizer)
    model.compile(optimizer, "mse")
    return model


@needs_tensorflow
@pytest.mark.engines("local")
def test_a_creator_may_use_horovod_as_its_documents_say(engine):
    import horovod.tensorflow.keras as hvd

    plain = make_model({})
    plain.fit(X, Y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    est = Estimator.from_keras(
        model_creator=make_model, backend="horovod", num_workers=2, config={"shuffle": False, "horovod": True}
    )
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    est.fit({"x": X, "y": Y}, epochs=2, batch_size=BATCH, callbacks=callbacks)  # raises if replicas differ
    for trained, expected in zip(est._state["models"][0], plain.get_weights(), strict=True):
        np.testing.assert_allclose(trained, expected, rtol=1e-4, atol=1e-6)


def test_callbacks_of_horovod_that_need_every_rank_are_left_out():
    import keras

    class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
        __module__ = "horovod.tensorflow.keras.callbacks"

    assert adapt([BroadcastGlobalVariablesCallback()]) == []
    (ours,) = adapt([BroadcastGlobalVariablesCallback(), keras.callbacks.TerminateOnNaN()])
    assert isinstance(ours, KerasCallbacks)


def test_an_optimizer_of_horovod_becomes_that_of_keras_again():
    import keras

    from zoo.orca.learn.tf2.horovod_optimizer import unwrap

    optimizer = keras.optimizers.SGD(0.1)
    unwrap(optimizer)
    assert type(optimizer) is keras.optimizers.SGD
    derived = type("SGD", (keras.optimizers.SGD,), {"__module__": "horovod._keras", "variables": None})
    optimizer.__class__ = derived
    optimizer._allreduce_grads, optimizer._agg_helper = print, None
    unwrap(optimizer)
    assert type(optimizer) is keras.optimizers.SGD
    wrapped = derived.__new__(derived)
    vars(wrapped).update(vars(SimpleNamespace(_allreduce_grads=print, _agg_helper=object())))
    with pytest.raises(NotOfferedError, match="gradient_accumulation_steps"):
        unwrap(wrapped)
