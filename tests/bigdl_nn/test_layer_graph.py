"""Graphs of layers, and containers."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigdl.nn.layer import (
    CAddTable,
    Concat,
    ConcatTable,
    Container,
    Identity,
    Input,
    JoinTable,
    Linear,
    Model,
    ParallelTable,
    ReLU,
    SelectTable,
    Sequential,
    SpatialAveragePooling,
    SpatialConvolution,
    SpatialMaxPooling,
    SplitTable,
    Tanh,
)
from zoo.orca.errors import InvalidArgumentError


def x(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def two_by_two() -> Model:
    """Two inputs, two outputs, and a layer used twice."""
    first, second = Input("a"), Input("b")
    shared = Linear(3, 2).set_name("shared")
    left, right = shared(first), shared(second)
    added = CAddTable().set_name("sum")([left, right])
    return Model([first, second], [Tanh().set_name("tanh")(added), left])


def test_a_graph_of_several_inputs_and_outputs():
    model = two_by_two()
    weight, bias = model.get_weights()
    a, b = x(5, 3), x(5, 3) + 1
    first, second = model.forward([a, b])
    np.testing.assert_allclose(second, a @ weight.T + bias, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(first, np.tanh((a + b) @ weight.T + 2 * bias), rtol=1e-4, atol=1e-6)
    assert [each.shape for each in model.predict([a, b], batch_size=2)] == [(5, 2), (5, 2)]
    gradients = model.backward([a, b], [np.zeros((5, 2)), np.ones((5, 2))])
    np.testing.assert_allclose(gradients[0], np.ones((5, 2)) @ weight, rtol=1e-4)
    assert not gradients[1].any()
    assert [layer.name() for layer in model.layers] == ["a", "shared", "b", "sum", "tanh"]
    assert isinstance(model, Container)
    with pytest.raises(InvalidArgumentError, match="2 inputs"):
        model.forward(a)
    with pytest.raises(InvalidArgumentError, match="2 inputs, got 3"):
        model.forward([a, a, a])


def test_a_graph_begins_with_any_layer():
    """As BigDL's own documents build graphs."""
    first, second = Linear(4, 2)(), Linear(3, 2)()
    model = Model([first, second], [ReLU()(CAddTable()([first, second]))])
    a, b = x(5, 4), x(5, 3)
    w, c, v, d = model.get_weights()
    expected = np.maximum(a @ w.T + c + b @ v.T + d, 0)
    for each in (model, pickle.loads(pickle.dumps(model))):
        np.testing.assert_allclose(each.forward([a, b]), expected, rtol=1e-4, atol=1e-6)
    alone = ReLU()()
    np.testing.assert_array_equal(Model(alone, alone).forward(a), np.maximum(a, 0))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), min_size=1, max_size=10), st.data())
def test_any_graph_gives_what_its_layers_give_one_by_one(steps, data):
    """Nodes that add two of those before them, or take tanh of one; some of them are outputs."""
    inputs = [Input(), Input()]
    nodes, values = list(inputs), [x(2, 3), x(2, 3) + 1]
    for one, other, adds in steps:
        one, other = one % len(nodes), other % len(nodes)
        nodes.append(CAddTable()([nodes[one], nodes[other]]) if adds else Tanh()(nodes[one]))
        values.append(values[one] + values[other] if adds else np.tanh(values[one]))
    chosen = data.draw(st.lists(st.integers(0, len(nodes) - 1), min_size=1, max_size=3))
    # Both inputs are outputs, too, so that none is left over.
    model = Model(inputs, [*inputs, *(nodes[each] for each in chosen)])
    for twin in (model, pickle.loads(pickle.dumps(model))):
        for found, number in zip(twin.forward(values[:2]), [0, 1, *chosen], strict=True):
            np.testing.assert_allclose(found, values[number], rtol=1e-4, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(*[st.integers(1, 9)] * 2, *[st.integers(1, 4)] * 4)
def test_same_padding_gives_an_output_for_every_stride(height, width, kernel_h, kernel_w, stride_h, stride_w):
    expected = (1, 1, -(-height // stride_h), -(-width // stride_w))
    image = x(1, 1, height, width)
    for layer in (
        SpatialConvolution(1, 1, kernel_w, kernel_h, stride_w, stride_h, -1, -1),
        SpatialMaxPooling(kernel_w, kernel_h, stride_w, stride_h, -1, -1),
        SpatialAveragePooling(kernel_w, kernel_h, stride_w, stride_h, -1, -1, count_include_pad=False),
    ):
        output = layer.forward(image)
        assert output.shape == expected
        assert np.isfinite(output).all()
    assert output.min() >= image.min() - 1e-6
    assert output.max() <= image.max() + 1e-6


def test_a_graph_is_cut_and_gone_on_from():
    model = two_by_two().evaluate()
    a, b = x(5, 3), x(5, 3) + 1
    part = model.cut("sum")
    np.testing.assert_allclose(np.tanh(part.forward([a, b])), model.forward([a, b])[0], rtol=1e-5)
    assert not part.is_training()
    longer = Model(model.inputs, Linear(2, 1)(model.node("tanh")))
    assert longer.forward([a, b]).shape == (5, 1)
    assert model._up_to("sum").forward([a, b]).shape == (5, 2)
    source = Input("a")
    chain = Model(source, ReLU().set_name("b")(Linear(3, 2)(source)))
    assert [node.name() for node in chain.cut(["b"]).nodes][-1] == "b"
    for name, says in [("summ", "Did you mean 'sum'"), ("shared", "2 times")]:
        with pytest.raises(InvalidArgumentError, match=says):
            model.node(name)


def test_gradients_stop_where_they_are_told_to():
    source = Input()
    first, last = Linear(3, 3).set_name("first"), Linear(3, 1).set_name("last")
    model = Model(source, last(Tanh()(first(source)))).stop_gradient(["last"])
    assert not model.backward(x(2, 3), np.ones((2, 1))).any()
    table = model.parameters()
    assert not table["first"]["gradWeight"].any()
    assert table["last"]["gradWeight"].any()
    assert not pickle.loads(pickle.dumps(model)).backward(x(2, 3), np.ones((2, 1))).any()


def test_a_graph_comes_back_with_what_its_layers_share(tmp_path):
    model = two_by_two()
    model.save(str(tmp_path / "net"))
    inputs = [x(5, 3), x(5, 3) + 1]
    for twin in (Model.load(str(tmp_path / "net")), pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert len(twin.get_weights()) == 2
        assert [node.name() for node in twin.nodes] == [node.name() for node in model.nodes]
        for one, other in zip(twin.forward(inputs), model.forward(inputs), strict=True):
            np.testing.assert_array_equal(one, other)
        twin.layer("shared").set_weights([np.zeros((2, 3)), np.zeros(2)])
        assert not twin.forward(inputs)[1].any()
        assert twin.cut("sum").forward(inputs).shape == (5, 2)
    assert model.forward(inputs)[1].any()


def test_a_layer_in_two_containers_is_one_layer(tmp_path):
    shared = Linear(3, 3)
    model = Sequential().add(shared).add(Concat(2).add(shared).add(Identity())).add(shared_tail())
    model.save(str(tmp_path / "net"))
    loaded = Model.load(str(tmp_path / "net"), allow_pickle=False)
    assert len(loaded.get_weights()) == len(model.get_weights()) == 4
    assert loaded.layers[0] is loaded.layers[1].layers[0]
    np.testing.assert_array_equal(loaded.forward(x(2, 3)), model.forward(x(2, 3)))
    assert [type(each).__name__ for each in model.flattened_layers()] == ["Linear", "Identity", "Linear"]
    assert len(model.flattened_layers(include_container=True)) == 6


def shared_tail() -> Sequential:
    return Sequential().add(Linear(6, 2))


def test_tables_run_through_containers():
    model = (
        Sequential()
        .add(SplitTable(1, 1))
        .add(ParallelTable().add(Identity()).add(Tanh()).add(ReLU()))
        .add(ConcatTable().add(SelectTable(1)).add(SelectTable(2)))
    )
    first, second = model.forward(x(4, 3))
    np.testing.assert_allclose(first, x(4, 3)[:, 0])
    np.testing.assert_allclose(second, np.tanh(x(4, 3)[:, 1]), rtol=1e-6)
    with pytest.raises(InvalidArgumentError, match="3 layers, but a table of 2"):
        model.layers[1].forward([x(4, 3), x(4, 3)])


def test_a_long_chain_can_be_pickled_and_saved(tmp_path):
    node = source = Input()
    for _ in range(600):
        node = Identity()(node)
    model = Model(source, node)
    model.save(str(tmp_path / "net"))
    for twin in (pickle.loads(pickle.dumps(model)), Model.load(str(tmp_path / "net"))):
        np.testing.assert_array_equal(twin.forward(x(2, 3)), x(2, 3))


def test_what_is_no_graph_is_answered():
    first, second = Input("a"), Input("b")
    joined = JoinTable(1, 1)([first, second])
    for make, says in [
        (lambda: Model(first, joined), r"depend on \['b'\] too"),
        (lambda: Model([first, second], Tanh()(first)), r"do not depend on the inputs \['b'\]"),
        (lambda: Model(first, Tanh()), "outputs to be a node"),
        (lambda: Model([], joined), "inputs to be a node"),
        (lambda: Linear(3, 2)(x(2, 3)), r"layer.forward\(x\)"),
        (lambda: Linear(3, 2)([first, ReLU()]), "got ReLU"),
        (lambda: Model([first, second], joined).add(ReLU()), "takes no layer by add"),
    ]:
        with pytest.raises(InvalidArgumentError, match=says):
            make()


def test_a_sequence_is_cut_at_a_layer():
    model = Sequential().add(Sequential().add(Linear(3, 2)).add(Tanh().set_name("middle")).add(ReLU())).add(ReLU())
    np.testing.assert_allclose(
        model._up_to("middle").forward(x(2, 3)),
        model.layers[0].layers[1].forward(model.layers[0].layers[0].forward(x(2, 3))),
    )
    with pytest.raises(InvalidArgumentError, match="Did you mean 'middle'"):
        model._up_to("midle")


def test_star_import_brings_layers_and_what_it_always_brought():
    names: dict[str, object] = {}
    exec("from bigdl.nn.layer import *", names)
    assert {"Linear", "Sequential", "Model", "Input", "Layer", "Container", "np", "Sample", "JTensor"} <= names.keys()
