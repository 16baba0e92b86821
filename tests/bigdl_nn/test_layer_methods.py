"""What layers do besides computing: weights, freezing, regularizers, prediction, files, forms."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import subprocess
import sys

import cloudpickle
import numpy as np
import pytest
import torch

from bigdl.nn import initialization_method as init
from bigdl.nn.layer import (
    GRU,
    LSTM,
    BatchNormalization,
    BiRecurrent,
    CAddTable,
    Concat,
    Dropout,
    Layer,
    Linear,
    LogSoftMax,
    LookupTable,
    Model,
    Recurrent,
    ReLU,
    Sequential,
    SpatialConvolution,
    SpatialFullConvolution,
    SpatialSeparableConvolution,
    Tanh,
    View,
)
from bigdl.optim.optimizer import L1L2Regularizer, L1Regularizer, L2Regularizer, Top1Accuracy
from bigdl.util.common import Sample
from zoo.orca.errors import (
    BatchError,
    CheckpointError,
    InvalidArgumentError,
    PathExistsError,
    PathNotFoundError,
    UnknownArgumentError,
)


def net() -> Sequential:
    return Sequential().add(Linear(4, 3).set_name("first")).add(Tanh()).add(Linear(3, 2).set_name("last"))


def x(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


class Doubled(Linear):
    """A layer of a user's own."""

    def __init__(self, size: int, factor: float = 2.0):
        super().__init__(size, size)
        self.set_weights([each * factor for each in self.get_weights()])


# -- arguments ----------------------------------------------------------------------------------------------------


def test_classes_of_the_catalogue_look_written_out():
    signature = inspect.signature(SpatialConvolution)
    assert list(signature.parameters)[:4] == ["n_input_plane", "n_output_plane", "kernel_w", "kernel_h"]
    assert list(signature.parameters)[-3:] == ["with_bias", "data_format", "bigdl_type"]
    assert signature.parameters["data_format"].default == "NCHW"
    assert (Linear.__module__, Linear.__qualname__) == ("bigdl.nn.layer", "Linear")
    assert Linear.__doc__
    assert pickle.loads(pickle.dumps(Linear)) is Linear
    assert isinstance(Linear(1, 1, bigdl_type="float"), Layer)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Linear(input_sise=3, output_size=2), "Did you mean input_size=3"),
        (lambda: Linear(3, 2, withBias=False), "Did you mean with_bias=False"),
        (lambda: Linear(3), "output_size"),
        (lambda: Concat(dim=2), "Did you mean dimension=2"),
        (lambda: Doubled(3, factr=2.0), "Did you mean factor=2.0"),
        (lambda: LSTM(3, 2, activation="tan"), "tanh"),
        (lambda: SpatialConvolution(3, 4, 1, 1, n_group=2), "n_group=2"),
        (lambda: SpatialConvolution(3, 4, 1, 1, data_format="CHW"), "NHWC"),
        (lambda: Linear(3, 2, init_weight=np.ones((3, 2))), r"\(2, 3\).*\(3, 2\)"),
        (lambda: Linear(3, 2, with_bias=False, init_bias=np.ones(2)), "no bias"),
        (lambda: Linear(3, 2, wRegularizer=0.1), "L2Regularizer"),
        (lambda: Sequential().add(torch.nn.Linear(1, 1)), "TorchModel.from_pytorch"),
        (lambda: Recurrent().add(Linear(1, 1)), "cell"),
        (lambda: Recurrent().add(GRU(1, 1)).add(GRU(1, 1)), "MultiRNNCell"),
        (lambda: ReLU().setWRegularizer(L2Regularizer(0.1)), "weights of its own"),
        (lambda: net().freeze("frist"), "Did you mean 'first'"),
        (lambda: GRU(2, 2).forward(np.ones((2, 2))), "Recurrent"),
        (lambda: init.RandomUniform(upper=1.0), "both"),
        (lambda: net().forward(np.ones((2, 5))), r"cannot take an input of shape \(2, 5\).*mat1"),
        (lambda: CAddTable().forward([np.ones((2, 2)), np.ones((2, 3))]), r"of shape \[\(2, 2\), \(2, 3\)\]"),
        (lambda: LogSoftMax().forward(np.ones((2, 3, 4))), "TimeDistributed"),
        (lambda: net().predict(np.ones((2, 5))), r"cannot take an input of shape \(2, 5\).*mat1"),
        (lambda: CAddTable().forward(np.ones((2, 2))), r"CAddTable takes a list of tensors, got one of shape \(2, 2\)"),
        (lambda: Linear(3, 2).forward([np.ones((2, 3))] * 2), "must be Tensor, not list"),
        (lambda: Recurrent().forward(np.ones((2, 3, 4))), r"holds no layer yet.*add\(layer\)"),
        (lambda: Linear("3", 2), "whole numbers from 1 on"),
        (lambda: Linear(3, -2), "whole numbers from 1 on"),
        (lambda: Linear(1, 1).set_weights([["one"], [0.0]]), "array of numbers"),
        (lambda: net().set_init_method(init.Zeros()), "weights of its own"),
    ],
)
def test_what_cannot_work_is_answered(make, says):
    with pytest.raises(InvalidArgumentError, match=says):
        make()


def test_a_misspelt_argument_is_a_type_error_too():
    with pytest.raises(TypeError, match="input_size") as caught:
        Linear(input_sise=3, output_size=2)
    assert isinstance(caught.value, UnknownArgumentError)


# -- weights ------------------------------------------------------------------------------------------------------


def test_weights_are_set_all_or_none():
    model = net()
    shapes = [each.shape for each in model.get_weights()]
    assert shapes == [(3, 4), (3,), (2, 3), (2,)]
    new = [np.full(shape, 0.5, np.float32) for shape in shapes]
    model.set_weights(new)
    assert all((each == 0.5).all() for each in model.get_weights())
    for wrong, says in [(new[:3], "4 weights"), ([*new[:3], np.ones(3)], r"\(2,\).*\(3,\)"), (new[0], "list")]:
        with pytest.raises(InvalidArgumentError, match=says):
            model.set_weights(wrong)
    assert all((each == 0.5).all() for each in model.get_weights())
    model.get_weights()[0][:] = 9
    assert model.get_weights()[0].max() == 0.5


def test_convolutions_show_groups_first_and_take_torch_shapes():
    layer = SpatialConvolution(4, 6, 3, 2, n_group=2)
    assert [each.shape for each in layer.get_weights()] == [(2, 3, 2, 2, 3), (6,)]
    weight = x(6, 2, 2, 3)
    layer.set_weights([weight, np.zeros(6)])
    np.testing.assert_array_equal(layer.get_weights()[0], weight.reshape(2, 3, 2, 2, 3))


def test_parameters_by_layer_name():
    model = net()
    model.forward(x(5, 4))
    model.backward(x(5, 4), np.ones((5, 2)))
    found = model.parameters()
    assert list(found) == ["first", "last"]
    assert {key: each.shape for key, each in found["last"].items()} == {
        "weight": (2, 3), "gradWeight": (2, 3), "bias": (2,), "gradBias": (2,),
    }  # fmt: skip
    np.testing.assert_allclose(found["last"]["gradBias"], [5, 5])
    norm = BatchNormalization(4)
    norm.forward(x(50, 4) + 10)
    (table,) = norm.parameters().values()
    assert table["runningMean"].min() > 0.8
    assert norm.get_weights()[0].shape == (4,)
    assert not ReLU().is_with_weights()
    assert ReLU().parameters() == {}


def test_gradients_add_up_until_they_are_zeroed_and_a_step_follows_them():
    layer = Linear(4, 2)
    for _ in range(2):
        layer.backward(x(3, 4), np.ones((3, 2)))
    assert layer.parameters()[layer.name()]["gradBias"].tolist() == [6, 6]
    before = layer.get_weights()[1]
    layer.update_parameters(0.1)
    np.testing.assert_allclose(layer.get_weights()[1], before - 0.6, rtol=1e-6)
    layer.zero_grad_parameters()
    assert layer.parameters()[layer.name()]["gradBias"].tolist() == [0, 0]


def test_backward_goes_through_the_pass_that_was_made():
    layer = Dropout(0.5)
    kept = layer.forward(np.ones((4, 50))) != 0
    assert 40 < kept.sum() < 160
    np.testing.assert_array_equal(layer.backward(np.ones((4, 50)), np.ones((4, 50))) != 0, kept)
    model = net()
    model.forward(x(3, 4))
    model.set_weights([each * 2 for each in model.get_weights()])
    twin = copy.deepcopy(model)
    np.testing.assert_array_equal(model.backward(x(3, 4), np.ones((3, 2))), twin.backward(x(3, 4), np.ones((3, 2))))
    with pytest.raises(InvalidArgumentError, match=r"\(3, 2\)"):
        model.backward(x(3, 4), np.ones((3, 3)))


def test_weights_begin_as_in_torch7_and_by_the_seed():
    Layer.set_seed(5)
    first = Linear(100, 50)
    first.set_seed(5)
    np.testing.assert_array_equal(first.get_weights()[0], Linear(100, 50).get_weights()[0])
    for layer, limit in [(first, 0.1), (SpatialConvolution(4, 50, 5, 5), 0.1)]:
        weight, bias = layer.get_weights()
        assert 0.095 < abs(weight).max() <= limit
        assert 0.08 < abs(bias).max() <= limit
    given = Linear(2, 1, init_weight=np.array([[3, 4]]), init_bias=np.array([5]), init_grad_weight=np.ones((1, 2)))
    assert [each.tolist() for each in given.get_weights()] == [[[3, 4]], [5]]
    assert given.parameters()[given.name()]["gradWeight"].tolist() == [[1, 1]]
    assert given.reset().get_weights()[0].max() < 1


@pytest.mark.parametrize(
    ("method", "check"),
    [
        (init.Zeros(), lambda w: (w == 0).all()),
        (init.Ones(), lambda w: (w == 1).all()),
        (init.ConstInitMethod(0.3), lambda w: np.allclose(w, 0.3)),
        (init.RandomUniform(2.0, 1.0), lambda w: w.min() >= 1 and 1.9 < w.max() <= 2),
        (init.RandomUniform(), lambda w: 0.095 < w.max() <= 0.1),
        (init.RandomNormal(3.0, 0.1), lambda w: abs(w.mean() - 3) < 0.01 and abs(w.std() - 0.1) < 0.01),
        (init.Xavier(), lambda w: 0.19 < w.max() <= 0.2),
        (init.MsraFiller(), lambda w: abs(w.std() - (2 / 75) ** 0.5) < 0.01),
        (init.MsraFiller(False), lambda w: abs(w.std() - (2 / 100) ** 0.5) < 0.01),
    ],
)
def test_initialization_methods(method, check):
    torch.manual_seed(1)
    weight, bias = Linear(100, 50).set_init_method(method, init.Zeros()).get_weights()
    assert check(weight)
    assert (bias == 0).all()


def test_bilinear_filler_enlarges_smoothly():
    layer = SpatialFullConvolution(1, 1, 4, 4, 2, 2, 1, 1, no_bias=True).set_init_method(init.BilinearFiller())
    ramp = np.arange(5, dtype=np.float32) * np.ones((1, 1, 5, 1), np.float32)
    np.testing.assert_allclose(layer.forward(ramp)[0, 0, 4, 1:-1], np.linspace(0.25, 3.75, 8), rtol=1e-6)
    with pytest.raises(InvalidArgumentError, match="kernels"):
        Linear(2, 2).set_init_method(init.BilinearFiller())


def test_frozen_layers_stay_and_gradients_pass_through_them():
    model = net().freeze(["first"])
    assert np.abs(model.backward(x(3, 4), np.ones((3, 2)))).max() > 0
    before = model.get_weights()
    model.update_parameters(0.1)
    after = model.get_weights()
    assert [bool((a == b).all()) for a, b in zip(before, after, strict=True)] == [True, True, False, False]
    model.freeze()
    assert not any(weight.requires_grad for weight in model.module.parameters())
    model.unfreeze(["last"])
    assert [weight.requires_grad for weight in model.module.parameters()] == [False, False, True, True]


def test_regularizers_add_to_the_gradient():
    layer = Linear(2, 2, wRegularizer=L1L2Regularizer(0.1, 0.2), bRegularizer=L2Regularizer(0.5))
    weight, bias = layer.get_weights()
    model = Sequential().add(layer).add(ReLU()).add(SpatialSeparableConvolution(1, 1, 1, 1, 1))
    expected = 0.1 * abs(weight).sum() + 0.1 * (weight**2).sum() + 0.25 * (bias**2).sum()
    assert model.module.penalty().item() == pytest.approx(expected)
    layer.backward(np.zeros((1, 2)), np.zeros((1, 2)))
    table = layer.parameters()[layer.name()]
    np.testing.assert_allclose(table["gradWeight"], 0.1 * np.sign(weight) + 0.2 * weight, rtol=1e-5)
    np.testing.assert_allclose(table["gradBias"], 0.5 * bias, rtol=1e-5)
    layer.setWRegularizer(None).setBRegularizer(L1Regularizer(1.0))
    assert model.module.penalty().item() == pytest.approx(abs(bias).sum())
    assert pickle.loads(pickle.dumps(model)).module.penalty().item() == pytest.approx(abs(bias).sum())
    layer.freeze()
    assert model.module.penalty() is None
    cell = GRU(2, 2, uRegularizer=L1Regularizer(1.0))
    assert cell.module.penalty().item() == pytest.approx(abs(cell.get_weights()[2]).sum())


# -- modes and prediction -----------------------------------------------------------------------------------------


def test_modes_and_names():
    model = Sequential().add(Dropout(0.9)).set_name("net")
    assert model.is_training()
    assert model.evaluate() is model
    assert not model.is_training()
    np.testing.assert_array_equal(model.forward(x(2, 4)), x(2, 4))
    assert model.training().layers[0].is_training()
    assert model.name() == "net"
    assert Linear(1, 1).name().startswith("Linear")
    assert Linear(1, 1).name() != Linear(1, 1).name()
    assert model.value is model.module


def test_prediction_is_out_of_training_and_leaves_the_mode():
    model = Sequential().add(Dropout(0.5)).add(Linear(4, 2)).add(LogSoftMax())
    output = model.predict(x(70, 4))
    np.testing.assert_allclose(output, model.predict_local(x(70, 4), batch_size=7), rtol=1e-5)
    np.testing.assert_array_equal(model.predict_class(x(70, 4)), output.argmax(1) + 1)
    np.testing.assert_array_equal(model.predict_class_local(x(70, 4)), output.argmax(1) + 1)
    assert all(part.training for part in model.module.modules())
    with pytest.raises(InvalidArgumentError, match="records"):
        model.predict([x(3, 4), x(4, 4)])


def test_records_are_predicted_and_measured_where_they_lie(engine):
    from zoo.orca.learn.records import Records

    rows, labels = x(40, 4), np.arange(40) % 2 + 1.0
    samples = [Sample.from_ndarray(row, label) for row, label in zip(rows, labels, strict=True)]
    data = engine.sc.parallelize(samples, 3) if engine.name == "spark" else Records.of(samples, 3)
    model = Sequential().add(Linear(4, 2)).add(Dropout(0.5)).add(LogSoftMax())
    expected = model.predict(rows)
    found = model.predict(data, batch_size=7).collect()
    np.testing.assert_allclose(np.stack(found), expected, rtol=1e-4)
    assert list(model.predict_class(data).collect()) == (expected.argmax(1) + 1).tolist()
    (result,) = model.evaluate(data, 8, [Top1Accuracy()])
    assert (result.total_num, result.method) == (40, "Top1Accuracy")
    assert result.result == pytest.approx((expected.argmax(1) + 1 == labels).mean())
    with pytest.raises(InvalidArgumentError, match="val_methods"):
        model.evaluate(data, 8)


@pytest.mark.engines("local")
def test_images_are_predicted_up_to_a_layer(engine):
    from bigdl.transform.vision.image import LocalImageFrame, MatToTensor, Pipeline

    images = [np.random.default_rng(at).uniform(0, 255, (6, 6, 3)).astype(np.float32) for at in range(3)]
    frame = LocalImageFrame(images).transform(Pipeline([MatToTensor()]))
    model = Sequential().add(SpatialConvolution(3, 2, 3, 3).set_name("conv")).add(Dropout(0.5)).add(View([32]))
    for layer, shape in [(None, (32,)), ("conv", (2, 4, 4))]:
        predicted = model.predict_image(frame, output_layer=layer).get_predict()
        assert [value.shape for _, value in predicted] == [shape] * 3
    batch = np.stack([image.transpose(2, 0, 1) for image in images])
    expected = model.layers[0].predict(batch)
    np.testing.assert_allclose(np.stack([value for _, value in predicted]), expected, rtol=1e-4, atol=1e-2)
    with pytest.raises(InvalidArgumentError, match="Did you mean 'conv'"):
        model.predict_image(frame, output_layer="convv")


def test_ids_outside_the_table_are_named():
    with pytest.raises(BatchError, match=r"rows 1 to 4.*ids from 0 to 3"):
        LookupTable(4, 2).forward(np.array([[0, 3]]))
    table = LookupTable(4, 2, padding_value=2)
    table.backward(np.array([[2, 3]]), np.ones((1, 2, 2)))
    assert table.parameters()[table.name()]["gradWeight"].tolist() == [[0, 0], [0, 0], [1, 1], [0, 0]]


def test_hidden_states_can_be_read_and_set():
    whole, halves = Recurrent().add(LSTM(3, 2)), None
    with pytest.raises(InvalidArgumentError, match="forward"):
        whole.get_hidden_state()
    expected = whole.forward(x(2, 6, 3))
    whole.forward(x(2, 6, 3)[:, :4])
    halves = whole.get_hidden_state()
    assert [each.shape for each in halves] == [(2, 2), (2, 2)]
    whole.set_hidden_state(halves)
    np.testing.assert_allclose(whole.forward(x(2, 6, 3)[:, 4:]), expected[:, 4:], rtol=1e-5)
    with pytest.raises(InvalidArgumentError, match="each way"):
        BiRecurrent().add(GRU(3, 2)).get_hidden_state()


def test_gates_drop_values_only_while_training():
    layer = Recurrent().add(GRU(3, 2, p=0.5))
    assert not np.allclose(layer.forward(x(2, 6, 3)), layer.forward(x(2, 6, 3)))
    layer.evaluate()
    np.testing.assert_array_equal(layer.forward(x(2, 6, 3)), layer.forward(x(2, 6, 3)))


# -- files and forms ----------------------------------------------------------------------------------------------


def test_files(tmp_path):
    path, weights = str(tmp_path / "net.bigdl"), str(tmp_path / "net.bin")
    model = net().freeze("first")
    model.layers[2].setWRegularizer(L2Regularizer(0.1))
    model.add(Doubled(2)).evaluate()
    model.save(path)
    with pytest.raises(PathExistsError, match="over_write=True"):
        model.save(path)
    model.save(path, over_write=True)
    with pytest.raises(CheckpointError, match=r"Doubled.*allow_pickle=True"):
        Model.load(path, allow_pickle=False)
    loaded = Model.load(path)
    assert [type(each) for each in loaded.layers] == [Linear, Tanh, Linear, Doubled]
    assert [weight.requires_grad for weight in loaded.module.parameters()] == [False, False, True, True, True, True]
    assert not loaded.is_training()
    assert loaded.module.penalty().item() == pytest.approx(model.module.penalty().item())
    np.testing.assert_array_equal(loaded.forward(x(3, 4)), model.forward(x(3, 4)))

    model.saveModel(path, weights, over_write=True)
    np.testing.assert_array_equal(Model.loadModel(path, weights).forward(x(3, 4)), model.forward(x(3, 4)))
    with pytest.raises(CheckpointError, match="no weights"):
        Model.loadModel(path)
    with pytest.raises(CheckpointError, match="weights alone"):
        Model.load(weights)
    with pytest.raises(PathNotFoundError):
        Model.load(str(tmp_path / "none"))
    for content in (b"", b"nothing of ours"):
        (tmp_path / "other").write_bytes(content)
        with pytest.raises(CheckpointError, match="not a file that"):
            Model.load(str(tmp_path / "other"))
    torch.save({"a": 1}, tmp_path / "other")
    with pytest.raises(CheckpointError, match="not a file that"):
        Model.load(str(tmp_path / "other"))
    Linear(5, 5).saveModel(path, weights, over_write=True)
    model.save(path, over_write=True)
    with pytest.raises(CheckpointError, match="weights of another layer"):
        Model.loadModel(path, weights)


def test_a_damaged_file_is_never_read_as_if_it_were_whole(tmp_path):
    path = tmp_path / "net"
    model = net()
    model.save(str(path))
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            loaded = Model.load(str(path))
        except CheckpointError:
            continue
        # A byte that says nothing, between the parts of the file.
        for found, wanted in zip(loaded.get_weights(), model.get_weights(), strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = str(tmp_path / "net")
    old = net()
    old.save(path)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            net().save(path, over_write=True)
    assert os.listdir(tmp_path) == ["net"]
    np.testing.assert_array_equal(Model.load(path).get_weights()[0], old.get_weights()[0])

    old.save("memory://layers/net")
    np.testing.assert_array_equal(Model.load("memory://layers/net").get_weights()[0], old.get_weights()[0])


def test_a_file_that_names_something_else_as_a_layer_is_refused(tmp_path):
    path = str(tmp_path / "net")
    Linear(1, 1).save(path)
    held = torch.load(path, weights_only=True)
    for name in ("bigdl.nn.saving:save", "bigdl.nn.nowhere:Linear", "os:system"):
        held["layers"][0]["class"] = name
        torch.save(held, path)
        with pytest.raises(CheckpointError):
            Model.load(path, allow_pickle=name.startswith("bigdl"))


def test_modules_travel_in_pickles_of_their_own():
    """As workers get them: in a process that has not heard of layers yet."""
    model = Sequential().add(Linear(4, 3)).add(ReLU()).add(Dropout(0.5)).evaluate()
    script = "import sys, pickle, torch; print(pickle.load(sys.stdin.buffer)(torch.ones(1, 4)).sum().item())"
    done = subprocess.run(
        [sys.executable, "-c", script], input=cloudpickle.dumps(model.module), capture_output=True, env=os.environ
    )
    assert done.stderr == b""
    assert float(done.stdout) == pytest.approx(model.forward(np.ones((1, 4))).sum(), rel=1e-4)


def test_a_quantized_layer_predicts_nearly_the_same(tmp_path):
    model = Sequential().add(SpatialConvolution(1, 2, 3, 3)).add(net()).add(Linear(2, 2, with_bias=False))
    small = model.quantize()
    np.testing.assert_allclose(small.predict(x(2, 1, 6, 6)), model.predict(x(2, 1, 6, 6)), atol=0.05)
    assert (small.predict(x(2, 1, 6, 6)) != model.predict(x(2, 1, 6, 6))).any()
    assert len(model.get_weights()) == 7
    assert not small.is_training()
    small.save(str(tmp_path / "small"))
    loaded = Model.load(str(tmp_path / "small"), allow_pickle=False)
    np.testing.assert_array_equal(loaded.predict(x(2, 1, 6, 6)), small.predict(x(2, 1, 6, 6)))
    assert type(Linear(4, 2).quantize()) is Linear
    with pytest.raises(InvalidArgumentError, match="linear layers"):
        SpatialConvolution(1, 2, 3, 3).quantize()
