"""InferenceModel and Net: models that were saved before, read and asked."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from bigdl.nn.layer import CAddTable, Input, Linear, Model, ReLU, Sequential
from zoo.orca.errors import (
    InvalidArgumentError,
    MissingPackageError,
    NotOfferedError,
    PathNotFoundError,
    PreconditionError,
)
from zoo.orca.learn.openvino import Estimator
from zoo.orca.learn.records import Records
from zoo.pipeline.api.net import GraphNet, Net, TFNet
from zoo.pipeline.api.torch import TorchModel, zoo_pickle_module
from zoo.pipeline.inference import InferenceModel

X = np.random.default_rng(0).random((5, 3))


class Waits(torch.nn.Module):
    """Counts who is inside at once."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.most = 0, 0

    def forward(self, x):
        self.inside += 1
        self.most = max(self.most, self.inside)
        total = sum(float(x.sum()) for _ in range(200))
        self.inside -= 1
        return x * 0 + total


@pytest.fixture
def saved(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Dropout(0.9))
    path = str(tmp_path / "model.pt")
    torch.save(module, path, pickle_module=zoo_pickle_module)
    return module.eval(), path


@pytest.mark.engines("local", "spark")
def test_a_module_predicts_here_and_where_batches_lie(saved, engine):
    module, path = saved
    expected = module(torch.from_numpy(X).float()).detach().numpy()
    model = InferenceModel(supported_concurrent_num=2)
    model.load_torch(path)
    np.testing.assert_array_equal(model.predict(X), expected)
    net = Net.load_torch(path)
    assert isinstance(net, TorchModel)
    np.testing.assert_allclose(net.predict(X), expected, rtol=1e-6)
    batches = engine.sc.parallelize([X, X[:2]], 1) if engine.name == "spark" else Records.of([X, X[:2]])
    first, second = model.distributed_predict(batches).collect()
    np.testing.assert_allclose(first, expected, rtol=1e-6)
    assert second.shape == (2, 2)


def test_no_more_threads_are_in_a_model_than_it_supports():
    for allowed in (1, 3):
        model, module = InferenceModel(allowed), Waits()
        from zoo.pipeline.inference.predictors import ModulePredictor

        model._take(ModulePredictor(module, as_table=False))
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(model.predict, [X] * 12))
        assert 1 <= module.most <= allowed


def test_layers_and_tables_of_inputs(tmp_path):
    first, second = Input(), Input()
    graph = Model([first, second], [CAddTable()([Linear(3, 2)(first), Linear(3, 2)(second)])])
    graph.saveModel(str(tmp_path / "graph"), str(tmp_path / "weights"))
    model = InferenceModel()
    model.load_bigdl(str(tmp_path / "graph"), str(tmp_path / "weights"))
    np.testing.assert_allclose(model.predict([X, X]), graph.evaluate().forward([X, X]), rtol=1e-6)


def test_what_is_not_there_or_not_offered_is_said(saved, tmp_path):
    with pytest.raises(PreconditionError, match="no model yet"):
        InferenceModel().predict(X)
    with pytest.raises(InvalidArgumentError, match="supported_concurrent_num"):
        InferenceModel(0)
    with pytest.raises(PathNotFoundError, match="nowhere"):
        InferenceModel().load_torch("nowhere")
    with pytest.raises(NotOfferedError, match="Caffe"):
        InferenceModel().load_caffe("a", "b")
    with pytest.raises(InvalidArgumentError, match="model_type must be one of"):
        InferenceModel().load_tensorflow("folder", "pb")
    torch.save(saved[0].state_dict(), tmp_path / "weights.pt")
    with pytest.raises(InvalidArgumentError, match="not its state_dict"):
        Net.load_torch(str(tmp_path / "weights.pt"))


@pytest.mark.engines("local", "spark")
def test_a_model_of_openvino_predicts_here_and_where_batches_lie(engine, tmp_path):
    import openvino
    from openvino import opset13 as ops

    weights = np.arange(6, dtype=np.float32).reshape(3, 2)
    x = ops.parameter([-1, 3], np.float32, name="x")
    made = openvino.Model([ops.result(ops.matmul(x, ops.constant(weights), False, False))], [x], "model")
    openvino.save_model(made, str(tmp_path / "model.xml"), compress_to_fp16=False)
    (tmp_path / "model.bin").rename(tmp_path / "elsewhere.bin")
    files = str(tmp_path / "model.xml"), str(tmp_path / "elsewhere.bin")
    for batch_size in (0, 2):  # a model of two rows is given five all the same
        model = InferenceModel(supported_concurrent_num=3)
        model.load_openvino(*files, batch_size)
        np.testing.assert_allclose(model.predict(X), X @ weights, rtol=1e-5)
        with ThreadPoolExecutor(3) as pool:
            for factor, found in enumerate(pool.map(model.predict, [X * factor for factor in range(12)])):
                np.testing.assert_allclose(found, X @ weights * factor, rtol=1e-5)
    batches = engine.sc.parallelize([X, X[:2]], 1) if engine.name == "spark" else Records.of([X, X[:2]])
    first, second = model.distributed_predict(batches).collect()
    np.testing.assert_allclose(first, X @ weights, rtol=1e-5)
    assert second.shape == (2, 2)
    for wrong in ((files[0], "nowhere.bin"), ("nowhere.xml", files[1])):
        with pytest.raises(PathNotFoundError, match=r"nowhere\.(bin|xml)"):
            InferenceModel().load_openvino(*wrong)


def test_without_openvino_the_line_that_installs_it_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingPackageError, match=r"pip install .*\[openvino\]"):
        InferenceModel().load_openvino("model.xml", "model.bin")
    with pytest.raises(ImportError, match=r"pip install .*\[openvino\]"):
        Estimator.from_openvino(model_path="model.xml")


def test_a_graph_is_cut_and_frozen():
    source = Input(name="source")
    hidden = Linear(3, 4).set_name("first")(source)
    middle = ReLU().set_name("middle")(hidden)
    graph = GraphNet([source], [Linear(4, 2).set_name("last")(middle)])
    part = graph.new_graph(["middle"])
    assert isinstance(part, GraphNet)
    assert part.forward(X).shape == (5, 4)
    graph.freeze_up_to(["middle"])
    learns = {layer.name(): all(each.requires_grad for each in layer.module.parameters()) for layer in graph.layers
              if layer.is_with_weights()}  # fmt: skip
    assert learns == {"first": False, "last": True}
    graph.unfreeze()
    assert all(each.requires_grad for each in graph.module.parameters())
    assert {"first", "middle", "last"} <= {layer.name() for layer in graph.flattened_layers()}
    with pytest.raises(NotOfferedError, match="Keras"):
        graph.to_keras()


def test_graphs_of_tensorflow_and_models_of_keras(tmp_path):
    from zoo.orca.learn.tf2.quiet import start_here
    from zoo.util.tf import export_tf

    tf = start_here()
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as sess:
        x = v1.placeholder(tf.float32, [None, 3])
        export_tf(sess, str(tmp_path / "graph"), inputs=[x], outputs=[2 * x])
    model = InferenceModel()
    model.load_tensorflow(str(tmp_path / "graph"))
    np.testing.assert_allclose(model.predict(X), 2 * X, rtol=1e-6)
    assert isinstance(Net.load_tf(str(tmp_path / "graph")), TFNet)

    import keras

    made = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)])
    (tmp_path / "model.json").write_text(made.to_json())
    made.save_weights(tmp_path / "model.weights.h5")
    loaded = Net.load_keras(str(tmp_path / "model.json"), str(tmp_path / "model.weights.h5"))
    np.testing.assert_allclose(loaded(X).numpy(), made(X).numpy(), rtol=1e-6)
    with pytest.raises(InvalidArgumentError, match="json_path"):
        Net.load_keras()


def test_sequential_layers_come_back(tmp_path):
    layers = Sequential().add(Linear(3, 2))
    layers.save(str(tmp_path / "layers"))
    np.testing.assert_array_equal(Net.load(str(tmp_path / "layers")).forward(X), layers.forward(X))
