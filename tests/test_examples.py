"""Every example runs on its engines as a user would start it, says what it should, and complains about nothing."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
LINES = {
    "digits_on_arrays.py": [
        "they are [1, 7, 4, 6, 3, 1, 3, 9, 1, 7]",
    ],
    "recommender_on_spark.py": [
        "|-- prediction: float (nullable = true)",
        "|user|item|rating|prediction|",
    ],
    "keras_on_arrays.py": [
        "ended in epoch 9, the weights are those of epoch 6",
        "they are [1, 7, 4, 6, 3, 1, 3, 9, 1, 7]",
        "a Keras model as ever: 9,658 parameters",
    ],
    "keras_recommender_on_spark.py": [
        "|-- prediction: float (nullable = true)",
        "|user|item|rating|prediction|",
    ],
    "tf1_graph.py": [
        "they are [1, 7, 4, 6, 3, 1, 3, 9, 1, 7]",
    ],
    "tfpark_lenet.py": [
        "the first ten are [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]",
        "of 100 new images right: 99",
    ],
    "bigdl_layers.py": [
        "they are [1, 7, 4, 6, 3, 1, 3, 9, 1, 7]",
        "the same from a file: True",
        "weights of the last layer: (10, 32)",
    ],
    "images_from_a_folder.py": [
        "classes: 1 bars, 2 discs, 3 stripes",
        "held out: 1.00 of 60 images right",
        "test/discs/000.png is one of the discs",
    ],
    "nnframes_torch_classifier.py": [
        "After training:",
        "|features |label|prediction|",
    ],
    "nnframes_pipeline.py": [
        "the better learning rate of two: 0.02",
        "columns: length, width, label, features, scaled, prediction",
        "more than nine of ten flowers right: True",
    ],
    "train_export_serve.py": [
        "✓ inputs   pixels: float32 (?, 64)",
        "digits.xml: 0.92 of 297 held-out digits right",
        "digits-int8.xml: 0.92 of 297 held-out digits right",
        "they are [1, 7, 4, 6, 3, 1, 3, 9, 1, 7]",
    ],
    "openvino_predict.py": [
        "a model in two files: digits.bin, digits.xml",
        "an array: 0.91 of 297 digits right",
        "batches: (7, 40, 10)",
        "shards: 0.91 right",
        "they are [1, 7, 4, 6, 3, 1, 3, 9, 1, 7]",
    ],
    "mxnet_lenet.py": [
        "two workers saw 1500 rows an epoch; a server tells {{}}",
        "they are [1, 7, 4, 6, 3, 1, 3, 9, 1, 7]",
        "a HybridSequential of gluon as ever",
    ],
    "dataloader_script.py": [
        "the same weights, to float tolerance: True",
    ],
    "custom_operator.py": [
        "real:           mean 3.98, spread 1.50",
    ],
    "pandas_on_shards.py": [
        "4000 trips in 4 shards of 2 partitions",
        "zones: [1, 2, 3, 4, 5]",
        " Market 7436.50 13.96",
    ],
    "recover_and_resume.py": [
        "workers were started again: 1 time",
        "the same weights as undisturbed, to the bit: True",
        "the fit ended: the power is gone",
        "resumed, and again the same weights: True",
    ],
    "callbacks_and_tensorboard.py": [
        "EarlyStopping(monitor='val_Accuracy', mode='max', patience=4, min_delta=0.0)",
        "ended before epoch 40: True",
        "steps in TensorBoard: True",
        "a picture of the curves",
    ],
    "parquet_in_shards.py": [
        "closer than the mean of all would be: True",
        "saved and read again: {{'prediction': (1,), 'x': (10,), 'y': (1,)}}",
    ],
    "keras_on_tf_data.py": [
        "rows of the last epoch: 1500",
        "they are [1, 7, 4, 6, 3, 1, 3, 9, 1, 7]",
    ],
    "ray_dataset.py": [
        "more than nine of ten held-out digits right: True",
        "columns: pixels, digit, prediction",
        "they are [1, 7, 4, 6, 3, 1, 3, 9, 1, 7]",
    ],
    "mixed_precision.py": [
        "would that fit start? False",
        "would this one? True",
    ],
    "gang.py": [
        "rank 1 of 2",
        "every rank has the same answer: True",
        "mean 10.0191, spread 2.9941",
        "rank 1 raised at step 3: row 17 has no label",
    ],
}
# Some are about Spark alone. The others run anywhere; engines take long to start, so some share the clusters out.
ENGINES_OF = {
    "recommender_on_spark.py": ("spark",),
    "keras_recommender_on_spark.py": ("spark",),
    "nnframes_torch_classifier.py": ("spark",),
    "nnframes_pipeline.py": ("spark",),
    "train_export_serve.py": ("spark",),
    "openvino_predict.py": ("local", "ray"),
    "mxnet_lenet.py": ("local",),
    "keras_on_arrays.py": ("local",),
    "tf1_graph.py": ("local", "spark"),
    "tfpark_lenet.py": ("local",),
    "bigdl_layers.py": ("local", "spark"),
    "images_from_a_folder.py": ("local", "ray"),
    "custom_operator.py": ("local", "ray"),
    "dataloader_script.py": ("local", "spark"),
    "digits_on_arrays.py": ("local", "ray"),
    "gang.py": ("local", "spark"),
    "recover_and_resume.py": ("local",),
    "callbacks_and_tensorboard.py": ("local",),
    "parquet_in_shards.py": ("local", "spark"),
    "keras_on_tf_data.py": ("local",),
    "ray_dataset.py": ("ray",),
    "mixed_precision.py": ("local",),
}
# A document's own, which seeds nothing: its first weights are random, and those of most seeds learn in its ten steps.
START = {
    "nnframes_torch_classifier.py": [
        "-c",
        "import runpy, torch; torch.manual_seed(0); "
        f"runpy.run_path({str(EXAMPLES / 'nnframes_torch_classifier.py')!r}, run_name='__main__')",
    ]
}
# What these say is the same to the letter.
SAME_EVERYWHERE = [name for name in LINES if "local" in ENGINES_OF.get(name, ["local"])]


CLASSIFIED = """After training:\x20
+---------+-----+----------+
|features |label|prediction|
+---------+-----+----------+
|[2.0,1.0]|1.0  |1.0       |
|[1.0,2.0]|0.0  |0.0       |
|[2.0,1.0]|1.0  |1.0       |
|[1.0,2.0]|0.0  |0.0       |
+---------+-----+----------+

"""


def pytest_generate_tests(metafunc):
    engines = metafunc.config.getoption("--engines").split(",")
    marker = metafunc.definition.get_closest_marker("engines")
    engines = [each for each in engines if marker is None or each in marker.args]
    if "example" in metafunc.fixturenames:
        pairs = [(name, each) for name in LINES for each in engines if each in ENGINES_OF.get(name, engines)]
        metafunc.parametrize(("example", "engine_name"), pairs)
    elif "engine_name" in metafunc.fixturenames:
        metafunc.parametrize("engine_name", engines)


@dataclass
class Run:
    code: int
    stdout: str
    stderr: str
    files: dict[str, bytes]


@functools.cache
def run(example: str, engine: str) -> Run:
    """Run an example in a folder of its own, with no terminal."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, *START.get(example, [EXAMPLES / example]), "--engine", engine],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        paths = [path for path in Path(folder).rglob("*") if path.is_file()]
        files = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
        return Run(done.returncode, done.stdout, done.stderr, files)


def test_every_example_has_lines_to_expect():
    assert {path.name for path in EXAMPLES.glob("*.py")} == LINES.keys()


def test_example_runs(example, engine_name):
    done = run(example, engine_name)
    assert (done.code, done.stderr) == (0, "")
    said = [line.strip() for line in done.stdout.splitlines()]
    for line in LINES[example]:
        assert line.format(engine=engine_name).strip() in said
    assert "\033" not in done.stdout


def test_example_says_the_same_on_every_engine(engine_name):
    for example in (name for name in SAME_EVERYWHERE if engine_name in ENGINES_OF.get(name, [engine_name])):
        assert run(example, engine_name).stdout == run(example, "local").stdout


@pytest.mark.engines("spark")
@pytest.mark.parametrize("name", ["recommender_on_spark.py", "keras_recommender_on_spark.py"])
def test_recommenders_come_close_to_held_out_ratings(engine_name, name):
    *_, last = re.findall(r"off by (\d\.\d+) on held-out rows", run(name, engine_name).stdout)
    assert float(last) < 0.25


@pytest.mark.engines("spark")
def test_the_classifier_of_the_documents_prints_their_table(engine_name):
    assert run("nnframes_torch_classifier.py", engine_name).stdout == CLASSIFIED


@pytest.mark.engines("local", "ray")
def test_digits_on_arrays_learn(engine_name):
    (accuracy,) = re.findall(r"held out: {'Top1Accuracy': (\d\.\d+)}", run("digits_on_arrays.py", engine_name).stdout)
    assert float(accuracy) >= 0.9


@pytest.mark.engines("local")
def test_digits_in_keras_learn(engine_name):
    (accuracy,) = re.findall(r"'validation_accuracy': (\d\.\d+)}", run("keras_on_arrays.py", engine_name).stdout)
    assert float(accuracy) >= 0.85
