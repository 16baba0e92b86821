"""Model files on arrays: every record count at every batch size, every kind of input, and bad input said clearly."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import numpy as np
import openvino
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ir_models import (
    any_model,
    dense_model,
    dense_numpy,
    image_model,
    image_numpy,
    save,
    table_model,
    table_numpy,
)
from openvino import opset13 as ops

from zoo.orca.errors import BatchError, InvalidArgumentError, ModelFileError, ModelFileMissingError, NotOfferedError
from zoo.orca.learn.openvino import Estimator, OpenVINOEstimator
from zoo.orca.learn.openvino.model_file import ModelFile
from zoo.orca.learn.openvino.predictor import OpenVINOPredictor

pytestmark = [pytest.mark.engines("local"), pytest.mark.usefixtures("engine")]

RNG = np.random.default_rng(5)
IMAGES = RNG.normal(size=(23, 3, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("ir")


@pytest.fixture(scope="module")
def images(folder) -> dict[str, OpenVINOEstimator]:
    """One model whose batch is any, fixed at 4, made any or 5 afterwards, and of bounds."""
    return {
        "any": Estimator.from_openvino(model_path=image_model(folder)),
        "4": Estimator.from_openvino(model_path=image_model(folder, batch=4)),
        "4 made any": Estimator.from_openvino(model_path=image_model(folder, batch=4), batch_size=-1),
        "any made 5": Estimator.from_openvino(model_path=image_model(folder), batch_size=5),
        "2 to 4": Estimator.from_openvino(model_path=image_model(folder, batch=openvino.Dimension(2, 4))),
    }


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["any", "4", "4 made any", "any made 5", "2 to 4"]),
    st.integers(0, 23),
    st.integers(1, 30),
    st.sampled_from([np.float32, np.float64, np.float16, np.int16]),
    st.sampled_from(["plain", "read-only", "strided"]),
)
def test_any_count_at_any_batch_size(images, which, rows, batch_size, dtype, layout):
    x = (IMAGES[:rows] * 3).astype(dtype)
    if layout == "strided":
        x = np.asfortranarray(x)
    x.flags.writeable = layout != "read-only"
    before = x.copy()
    found = images[which].predict(x, batch_size=batch_size)
    assert (found.shape, found.dtype) == ((rows, 5), np.float32)
    np.testing.assert_allclose(found, image_numpy(x), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("which", ["any", "4", "any made 5"])
def test_a_leading_dimension_of_batches_stays(images, which):
    x = RNG.random((6, 4, 3, 8, 8))
    np.testing.assert_allclose(images[which].predict(x), image_numpy(x), rtol=1e-5)
    np.testing.assert_allclose(images[which].predict([x]), image_numpy(x), rtol=1e-5)
    assert images[which].predict(x[:0]).shape == (0, 4, 5)
    assert images[which].predict(x[:, :0]).shape == (6, 0, 5)


def test_several_inputs_and_outputs_by_order_and_by_name(folder):
    est = Estimator.from_openvino(model_path=table_model(folder))
    ids, x = np.arange(11), RNG.normal(size=(11, 3))
    expected = table_numpy(ids, x)
    by_batches = [ids[:10].reshape(2, 5), x[:10].reshape(2, 5, 3)]
    for data in (
        [ids, x],
        (ids, x),
        {"x": x, "ids": ids},
        {"x": [ids, x]},
        {"x": {"ids": ids, "x": x}},
        {"x": [ids, x], "y": ids},
    ):
        found = est.predict(data, batch_size=3)
        assert [each.shape for each in found] == [(11, 2), (11,), (11, 1)]
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    found = est.predict(by_batches)
    np.testing.assert_allclose(found[0], expected[0][:10].reshape(2, 5, 2), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[1], expected[1][:10].reshape(2, 5), rtol=1e-5, atol=1e-6)


def test_dimensions_that_only_the_data_knows(folder):
    est = Estimator.from_openvino(model_path=any_model(folder))
    for width in (1, 7):
        x = RNG.random((9, width, 2)).astype(np.float32)
        np.testing.assert_array_equal(est.predict(x, batch_size=4), x * 2)
    for empty in ((0, 3, 2), (4, 0, 2), (5, 4, 0, 2)):
        assert est.predict(np.empty(empty)).shape == empty


def test_paths_and_estimators_that_travel(tmp_path, monkeypatch):
    """The contents are read at once: the file may go, and the estimator may be sent elsewhere."""
    folder = tmp_path / "mo\u0308dels \u6f22"
    folder.mkdir()
    path = dense_model(folder)
    monkeypatch.chdir(folder)
    made = [Estimator.from_openvino(model_path=each) for each in (path, Path(path), "dense.xml", f"file://{path}")]
    for each in folder.iterdir():
        each.unlink()
    x = RNG.normal(size=(3, 3))
    for est in [*made, pickle.loads(pickle.dumps(made[0]))]:
        np.testing.assert_allclose(est.predict(x), dense_numpy(x), rtol=1e-5)


def test_another_model_is_loaded_and_a_bad_one_is_not(folder):
    est = Estimator.from_openvino(model_path=dense_model(folder))
    x = RNG.normal(size=(3, 3))
    np.testing.assert_allclose(est.predict(x), dense_numpy(x), rtol=1e-5)
    with pytest.raises(ModelFileMissingError):
        est.load(str(folder / "nowhere.xml"))
    np.testing.assert_allclose(est.predict(x), dense_numpy(x), rtol=1e-5)
    assert est.load(image_model(folder)) is est
    np.testing.assert_allclose(est.predict(IMAGES), image_numpy(IMAGES), rtol=1e-5, atol=1e-5)
    assert isinstance(est.get_model(), openvino.Model)


def test_threads_share_a_model_without_mixing_rows(images):
    parts = [RNG.normal(size=(50 + number, 3, 8, 8)).astype(np.float32) for number in range(8)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda part: images["any"].predict(part, batch_size=3), parts))
    for mine, part in zip(found, parts, strict=True):
        np.testing.assert_allclose(mine, image_numpy(part), rtol=1e-5, atol=1e-5)


def test_arrays_tables_and_estimators_share_what_is_compiled(tmp_path, monkeypatch):
    made = []
    compiling = OpenVINOPredictor._compile
    monkeypatch.setattr(OpenVINOPredictor, "_compile", lambda *given: made.append(given) or compiling(*given))
    x = RNG.normal(size=(4, 3))
    path = dense_model(tmp_path, np.float16)
    for est in (Estimator.from_openvino(model_path=path), Estimator.from_openvino(model_path=path)):
        for data, columns in ((x, None), (pd.DataFrame({"x": list(x)}), "x")):
            np.testing.assert_allclose(est.predict(data, columns), dense_numpy(x), rtol=0.01, atol=0.01)
    assert len(made) == 1


def test_nan_goes_through_floats(folder):
    est = Estimator.from_openvino(model_path=dense_model(folder))
    found = est.predict(np.array([[np.nan, 0, 0], [1, 2, 3]]))
    assert np.isnan(found[0]).all()
    np.testing.assert_allclose(found[1], dense_numpy(np.array([[1.0, 2, 3]]))[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "taken", "refused"),
    [
        (np.int32, [[1.0, -2.0, 3.0]], {"0.5": 0.5, "nan": np.nan, "inf": np.inf, "3000000000": 3e9}),
        (np.uint8, [[1, 2, 255]], {"-1": -1, "256": 256}),
        (np.bool_, [[1, 0, True]], {"2": 2}),
    ],
)
def test_whole_numbers_are_taken_only_if_they_are(tmp_path, dtype, taken, refused):
    est = Estimator.from_openvino(model_path=dense_model(tmp_path, dtype))
    np.testing.assert_allclose(est.predict(np.array(taken)), dense_numpy(np.array(taken)), rtol=1e-5)
    for words, value in refused.items():
        with pytest.raises(InvalidArgumentError, match=f"'x'.*whole numbers.*has {words},"):
            est.predict(np.array([[0, 0, 0], [0, value, 0]]))


def test_bfloat16_and_half_are_floats_to_numpy(tmp_path):
    for kind, out in ((openvino.Type.bf16, np.float32), (openvino.Type.f16, np.float16)):
        x = ops.parameter([-1, 2], kind, name="x")
        est = Estimator.from_openvino(model_path=save(tmp_path, [x], [ops.relu(x)], f"{out.__name__}.xml"))
        found = est.predict(np.array([[1.5, -2]]))
        assert found.dtype == out
        np.testing.assert_array_equal(found, [[1.5, 0]])


BAD = {
    "takes 'image', .rows, 3, 8, 8. float32, but got float32 .3, 8, 8.": IMAGES[0],
    "takes 'image', .rows, 3, 8, 8. float32, but got float32 .23, 3, 8, 7.": IMAGES[..., :7],
    "takes 'image', .rows, 3, 8, 8. float32, but got float32 .1, 1, 23,": IMAGES[None, None],
    "takes 1 input.*but got 2.*np.stack": [IMAGES, IMAGES],
    "the dict has nothing": {},
    "but the dict has 'picture'": {"picture": IMAGES},
    "but got one of complex": IMAGES.astype(complex),
    "but got one of <U": np.full(IMAGES.shape, "1"),
    "but got one of object": IMAGES.astype(object),
    "but got one of datetime": np.zeros(IMAGES.shape, "datetime64[s]"),
}


@pytest.mark.parametrize("words", BAD)
def test_bad_arrays_are_refused_before_anything_runs(images, words, monkeypatch):
    monkeypatch.setattr("zoo.orca.learn.openvino.estimator.predict_arrays", None)
    with pytest.raises(InvalidArgumentError, match=words):
        images["any"].predict(BAD[words])


def test_bad_arguments_are_said(images, folder):
    est = images["any"]
    for batch_size in (0, True, 2.5, None):
        with pytest.raises(InvalidArgumentError, match="batch_size must be a whole number"):
            est.predict(IMAGES, batch_size=batch_size)
    two = Estimator.from_openvino(model_path=table_model(folder))
    with pytest.raises(InvalidArgumentError, match=r"takes 2 input.*'ids'.*'x'.*but got 1"):
        two.predict(np.zeros((2, 3)))
    with pytest.raises(InvalidArgumentError, match="as many rows, but they have 2, 3"):
        two.predict([np.zeros(2), np.zeros((3, 3))])
    with pytest.raises(InvalidArgumentError, match="batch_size must be 0"):
        Estimator.from_openvino(model_path=image_model(folder), batch_size=-2)
    with pytest.raises(InvalidArgumentError, match="device must be"):
        Estimator.from_openvino(model_path=image_model(folder), device=None)
    with pytest.raises(ModelFileError, match=r"device 'NOPE'.*the devices here are CPU"):
        Estimator.from_openvino(model_path=image_model(folder), device="NOPE").predict(IMAGES)
    with pytest.raises(ModelFileError, match=r"with config=.*leave config out.*NOPE"):
        Estimator.from_openvino(model_path=image_model(folder), config={"NOPE": 1}).predict(IMAGES)
    with pytest.raises(InvalidArgumentError, match="model_path must be a path"):
        Estimator.from_openvino(model_path=None)
    with pytest.raises(TypeError):
        Estimator.from_openvino("model.xml")


def test_what_is_not_offered_says_what_is(images):
    for name in ("fit", "evaluate", "save", "set_tensorboard", "get_train_summary", "load_orca_checkpoint"):
        with pytest.raises(NotOfferedError, match=f"no {name}"):
            getattr(images["any"], name)("data")
    assert images["any"].shutdown() is None


def test_files_that_are_no_model(tmp_path):
    path = Path(dense_model(tmp_path))
    weights = path.with_suffix(".bin")
    kept = weights.read_bytes()
    weights.unlink()
    for error in (ModelFileMissingError, AssertionError, FileNotFoundError):
        with pytest.raises(error, match=r"dense\.bin, where the weights of .*dense\.xml belong"):
            Estimator.from_openvino(model_path=str(path))
    weights.write_bytes(kept[:7])
    with pytest.raises(ModelFileError, match="cannot be read"):
        Estimator.from_openvino(model_path=str(path))
    weights.write_bytes(kept)
    path.write_text("<net>not a net")
    with pytest.raises(ModelFileError, match=r"dense\.xml cannot be read"):
        Estimator.from_openvino(model_path=str(path))
    path.unlink()
    with pytest.raises(AssertionError, match="no model file"):
        Estimator.from_openvino(model_path=str(path))
    (tmp_path / "model.onnx").write_bytes(b"no onnx")
    with pytest.raises(ModelFileError, match="cannot be read"):
        Estimator.from_onnx(model_path=str(tmp_path / "model.onnx"))
    with pytest.raises(ModelFileMissingError):
        Estimator.from_onnx(model_path=str(tmp_path / "other.onnx"))
    with pytest.raises(ModelFileError, match=r"ends in one of \.xml, \.onnx"):
        Estimator.from_openvino(model_path=str(tmp_path / "model.pt"))
    (tmp_path / "folder.xml").mkdir()
    with pytest.raises(ModelFileError, match="is a folder"):
        Estimator.from_openvino(model_path=str(tmp_path / "folder.xml"))


def test_models_that_do_not_fit_rows(tmp_path):
    x = ops.parameter([-1, 2], np.float32, name="x")
    summed = ops.reduce_sum(x, ops.constant(np.array([0])), keep_dims=True)
    total = ops.reduce_sum(x, ops.constant(np.array([0, 1])), keep_dims=False)
    with pytest.raises(ModelFileError, match=r"output 'out0' has 1 row\(s\) always"):
        Estimator.from_openvino(model_path=save(tmp_path, [x], [summed]))
    with pytest.raises(ModelFileError, match=r"output 'out0' has no row\(s\) always"):
        Estimator.from_openvino(model_path=save(tmp_path, [x], [total]))
    for name, size in (("more", 1), ("fewer", 4)):
        moved = ops.reshape(x, ops.constant(np.array([-1, size])), False)
        est = Estimator.from_openvino(model_path=save(tmp_path, [x], [moved], f"{name}.xml"))
        with pytest.raises(InvalidArgumentError, match="a row for each of the"):
            est.predict(np.ones((4, 2)))
    text = ops.parameter([-1], openvino.Type.string, name="x")
    with pytest.raises(NotOfferedError, match="holds string"):
        Estimator.from_openvino(model_path=save(tmp_path, [text], [text], "text.xml"))
    shapeless = ops.parameter(openvino.PartialShape.dynamic(), np.float32, name="x")
    path = save(tmp_path, [shapeless], [ops.relu(shapeless)], "shapeless.xml")
    for batch_size in (0, -1):
        with pytest.raises(ModelFileError, match="'x' of the model does not say how many dimensions"):
            Estimator.from_openvino(model_path=path, batch_size=batch_size)
    fixed = ops.parameter([2, 3], np.float32, name="x")
    reshaped = ops.reshape(fixed, ops.constant(np.array([2, 3])), False)
    with pytest.raises(ModelFileError, match="cannot be given a batch size of 7"):
        Estimator.from_openvino(model_path=save(tmp_path, [fixed], [reshaped], "fixed.xml"), batch_size=7)


def test_rows_that_the_model_cannot_take_leave_it_usable(tmp_path):
    """Six numbers cannot be laid out in four rows, which fails while other batches are under way."""
    count = ops.parameter([1], np.int64, name="count")
    shape = ops.concat([count, ops.constant(np.array([-1]))], 0)
    est = Estimator.from_openvino(
        model_path=save(tmp_path, [count], [ops.reshape(ops.constant(np.ones(6, np.float32)), shape, False)])
    )
    for _ in range(3):
        with pytest.raises(BatchError, match="could not run the model on 1 rows"):
            est.predict(np.array([1, 1, 4, 1, 1, 1, 1, 1]))
        np.testing.assert_array_equal(est.predict(np.ones(9)), np.ones((9, 6)))


def test_state_does_not_pass_from_batch_to_batch(tmp_path):
    x = ops.parameter([-1, 2], np.float32, name="x")
    before = ops.read_value(ops.constant(np.zeros((1, 2), np.float32)), "seen", np.float32, [1, 2])
    seen = ops.add(before, ops.reduce_sum(x, ops.constant(np.array([0])), keep_dims=True))
    model = openvino.Model([ops.result(ops.add(x, seen))], [ops.assign(seen, "seen")], [x], "state")
    openvino.save_model(model, str(tmp_path / "state.xml"), compress_to_fp16=False)
    est = Estimator.from_openvino(model_path=str(tmp_path / "state.xml"))
    np.testing.assert_array_equal(est.predict(np.ones((20, 2)), batch_size=2), np.full((20, 2), 3))


@pytest.mark.parametrize("device", ["CPU", "AUTO", "MULTI:CPU", "HETERO:CPU"])
def test_devices_that_choose_keep_to_their_cores(tmp_path, device, monkeypatch):
    asked = []

    class Core(openvino.Core):
        def compile_model(self, model, device, properties):
            asked.append(properties)
            return super().compile_model(model, device, properties)

    monkeypatch.setattr("zoo.orca.learn.openvino.predictor.core", Core)
    file = ModelFile.read(dense_model(tmp_path, np.float64))  # which nobody has compiled yet
    x = RNG.normal(size=(9, 3))
    np.testing.assert_allclose(OpenVINOPredictor(file, device).load(1)((x,)), dense_numpy(x), rtol=1e-5)
    for_cpu = asked[0] if device == "CPU" else asked[0]["DEVICE_PROPERTIES"]["CPU"]
    assert for_cpu["INFERENCE_NUM_THREADS"] == 1


def test_rows_are_cut_and_sent_out_on_a_cluster(folder, engine, monkeypatch):
    monkeypatch.setattr(type(engine), "one_machine", property(lambda self: False))
    monkeypatch.setattr("zoo.orca.learn.predict.arrays.ENGINE_BYTES", 0)
    est = Estimator.from_openvino(model_path=table_model(folder))
    ids, x = np.arange(60).reshape(12, 5), RNG.normal(size=(12, 5, 3))
    found = est.predict([ids, x], batch_size=4)
    for mine, theirs in zip(found, table_numpy(ids.reshape(-1), x.reshape(-1, 3)), strict=True):
        np.testing.assert_allclose(mine, theirs.reshape(12, 5, *theirs.shape[1:]), rtol=1e-5, atol=1e-6)


def test_a_remote_model(folder):
    path = Path(dense_model(folder))
    store = fsspec.filesystem("memory")
    for each in (path, path.with_suffix(".bin")):
        store.pipe(f"/openvino-models/{each.name}", each.read_bytes())
    x = RNG.normal(size=(5, 3))
    est = Estimator.from_openvino(model_path="memory://openvino-models/dense.xml")
    np.testing.assert_allclose(est.predict(x), dense_numpy(x), rtol=1e-5)
    for name in ("nothing.xml", "nothing.onnx"):
        with pytest.raises(ModelFileMissingError, match="nothing"):
            Estimator.from_openvino(model_path=f"memory://openvino-models/{name}")
    store.rm("/openvino-models", recursive=True)


def test_onnx_and_the_weights_beside_it(tmp_path):
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    weights = onnx.numpy_helper.from_array(np.arange(600, dtype=np.float32).reshape(3, 200), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["rows", 3])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["rows", 200])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = RNG.random((5, 3))
    for name, options in {
        "one": {},
        "two": {"save_as_external_data": True, "location": "w", "size_threshold": 0},
    }.items():
        path = str(tmp_path / f"{name}.onnx")
        onnx.save(model, path, **options)
        expected = x.astype(np.float32) @ np.arange(600, dtype=np.float32).reshape(3, 200)
        for make in (Estimator.from_onnx, Estimator.from_openvino):
            np.testing.assert_allclose(make(model_path=path).predict({"x": x}), expected, rtol=1e-5)


def test_a_process_ends_while_rows_are_under_way(folder):
    """No callback waits for the GIL at exit, nor after an error in the middle."""
    path = image_model(folder)
    script = (
        "import sys, numpy as np\n"
        "from zoo.orca.learn.openvino import Estimator\n"
        "from zoo.orca.learn.openvino.predictor import OpenVINOPredictor\n"
        "est = Estimator.from_openvino(model_path=sys.argv[1])\n"
        "runner = OpenVINOPredictor(est._file).load(2)\n"
        "jobs = [runner.start((np.ones((2000, 3, 8, 8), np.float32),), 500) for _ in range(4)]\n"
        "raise SystemExit(7)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, timeout=60, env=os.environ)
    assert done.returncode == 7, done.stderr
