"""Build the wheel, and try every extra alone, each in an empty environment: `make extras [ARGS="torch ray"]`.

An environment gets the wheel with one extra, imports what that extra is for, and runs a small job with it. It takes
long (every library is installed again and again), so it is no part of `make test`.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import tomllib
import venv
from pathlib import Path

from zoo.orca.optional import PINNED

ROOT = Path(__file__).resolve().parent.parent
NONE = "none"
# These only collect others, or are for work on this library.
NOT_ALONE = {"all", "bench", "dev", "docs"}

TORCH_JOB = """
    import torch
    from zoo.orca.learn.pytorch import Estimator
    net = torch.nn.Linear(2, 1)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    est = Estimator.from_torch(model=net, optimizer=sgd, loss=torch.nn.MSELoss(), num_workers=2)
    est.fit((x, x.sum(axis=1, keepdims=True)), epochs=1, batch_size=8)
    assert est.predict(x).shape == (32, 1)
"""
IR_MODEL = """
    import openvino as ov
    from openvino import opset13 as ops
    given = ops.parameter([-1, 2], np.float32, name="x")
    ov.save_model(ov.Model([ops.relu(given)], [given], "relu"), "relu.xml")
"""
DATA = "import numpy as np; x = np.random.default_rng(0).normal(size=(32, 2)).astype('float32')\n"
# A small job for each extra, on that array.
JOBS = {
    NONE: """
    from zoo.orca.data import XShards
    assert len(XShards.partition({"x": x}, num_shards=2).transform_shard(lambda shard: shard).collect()) == 2
""",
    "torch": TORCH_JOB,
    "tensorflow": """
    import keras
    from zoo.orca.learn.tf2 import Estimator
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    est = Estimator.from_keras(model=model, num_workers=2)
    est.fit((x, x.sum(axis=1, keepdims=True)), epochs=1, batch_size=8)
    assert est.predict(x).shape == (32, 1)
    import zoo.orca.learn.tf.estimator, zoo.tfpark
""",
    "mxnet": """
    from zoo.orca.learn.mxnet import Estimator, create_config
    import mxnet as mx
    def model(config):
        net = mx.gluon.nn.Dense(1)
        net.initialize(mx.init.Xavier())
        return net
    est = Estimator.from_mxnet(config=create_config(optimizer="sgd"), model_creator=model,
                               loss_creator=lambda config: mx.gluon.loss.L2Loss(), num_workers=2)
    est.fit((x, x.sum(axis=1, keepdims=True)), epochs=1, batch_size=8)
""",
    "openvino": IR_MODEL
    + """
    from zoo.orca.learn.openvino import Estimator
    assert (Estimator.from_openvino(model_path="relu.xml").predict(x) == np.maximum(x, 0)).all()
""",
    "onnx": """
    import onnx, onnxruntime
    from onnx import TensorProto, helper
    rows = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 2]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", rows[:1], rows[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), "relu.onnx")
    session = onnxruntime.InferenceSession("relu.onnx", providers=["CPUExecutionProvider"])
    assert (session.run(None, {"x": x})[0] == np.maximum(x, 0)).all()
    import zoo.orca.learn.export
""",
    "int8": IR_MODEL
    + """
    import nncf
    from zoo.orca.learn.export import int8
    nncf.quantize(ov.Core().read_model("relu.xml"), nncf.Dataset([x[:8]]))
""",
    "spark": """
    from zoo.orca import OrcaContext, init_orca_context
    from zoo.orca.data import XShards
    init_orca_context("local", cores=2)
    assert len(XShards.partition({"x": x}, num_shards=2).transform_shard(lambda shard: shard).collect()) == 2
    assert OrcaContext.get_spark_session().range(5).count() == 5
""",
    "ray": """
    from zoo.orca import init_orca_context
    from zoo.orca.data import XShards
    init_orca_context("ray", cores=2)
    import pandas as pd
    shards = XShards.partition(pd.DataFrame(x, columns=["a", "b"]), num_shards=2)
    assert shards.to_ray_dataset().count() == 32
""",
    "image": """
    import PIL.Image
    from zoo.feature.image import ImageResize, ImageSet
    PIL.Image.new("RGB", (8, 8)).save("a.png")
    small = ImageSet.read(".").transform(ImageResize(4, 4))
    assert [each.shape for each in small.get_image(to_chw=False)] == [(4, 4, 3)]
""",
    "s3": """
    from zoo.orca.data.file import open_text
    import fsspec
    assert "s3" in fsspec.get_filesystem_class("s3").protocol
""",
    "mlflow": """
    import mlflow
    from zoo.orca.learn.callbacks import MLflow
    mlflow.set_tracking_uri("sqlite:///runs.db")
    with mlflow.start_run():
        mlflow.log_metric("loss", 1.0)
    MLflow()
""",
    "plot": """
    import matplotlib.pyplot as plt
    plt.figure().savefig("plot.png")
""",
    "demo": """
    import subprocess, sys
    said = subprocess.run([sys.executable, "-m", "zoo.orca", "demo"], check=True, capture_output=True, text=True)
    assert "442 held-out images" in said.stdout
""",
}


def main() -> int:
    """Try the extras that are named, or all; 0 if all work."""
    options = parse_arguments()
    failed = []
    with tempfile.TemporaryDirectory(prefix="extras-") as folder:
        wheel = build(Path(folder))
        for extra in options.extras or JOBS:
            began = time.monotonic()
            trouble = try_extra(wheel, extra, options.torch, Path(folder) / extra)
            print(f"{'✗' if trouble else '✓'} {extra:<12} {time.monotonic() - began:4.0f} s", flush=True)
            if trouble:
                failed.append(extra)
                print(textwrap.indent(trouble, "    "), flush=True)
            shutil.rmtree(Path(folder) / extra, ignore_errors=True)
    return 1 if failed else 0


def build(folder: Path) -> Path:
    """The wheel, made from the source package as a user's pip would."""
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder, ROOT], check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    return wheel


def try_extra(wheel: Path, extra: str, torch: str, folder: Path) -> str:
    """Install the wheel with one extra into an empty environment and run its job there; what went wrong, if it did."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    (folder / "torch.txt").write_text(torch)
    asked = str(wheel) if extra == NONE else f"{wheel}[{extra}]"
    steps = [[python, "-m", "pip", "install", "--quiet", "--constraint", folder / "torch.txt", asked]]
    if extra in PINNED:
        steps.append([python, "-m", "pip", "install", "--quiet", "--no-deps", f"{extra}=={PINNED[extra]}"])
    (folder / "work").mkdir()
    steps += [[python, "-c", DATA + textwrap.dedent(JOBS[extra])], [python, "-m", "zoo.orca", "doctor"]]
    for step in steps:
        done = subprocess.run(step, cwd=folder / "work", capture_output=True, text=True, timeout=1200)
        if done.returncode:
            return f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return ""


def parse_arguments() -> argparse.Namespace:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    unknown = extras.keys() - NOT_ALONE - JOBS.keys()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    if unknown:
        parser.error(f"JOBS has no job for {', '.join(sorted(unknown))}")
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help=f"of {', '.join(JOBS)}; else all")
    parser.add_argument("--torch", default="torch==2.13.0", help="which torch to take (one build for CPUs is quicker)")
    options = parser.parse_args()
    if wrong := set(options.extras) - JOBS.keys():
        parser.error(f"there is no extra {', '.join(sorted(wrong))}; there are {', '.join(JOBS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
