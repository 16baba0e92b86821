"""torch, TensorFlow and MXNet trained in one workflow: one driver, one worker process, whichever was imported first.

The driver imports MXNet last, workers first. At last MXNet's kvstore runs in a process that holds TensorFlow, whose
protobuf it must not meet.
"""

from __future__ import annotations

import subprocess
import sys

WORKFLOW = """
import os
import numpy as np
from zoo.orca import init_orca_context, stop_orca_context
from zoo.orca.learn.mxnet import Estimator as ForMXNet, create_config
from zoo.orca.learn.pytorch import Estimator as ForTorch
from zoo.orca.learn.tf2 import Estimator as ForKeras

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import torch
import keras
from mxnet import gluon

x = np.random.default_rng(0).normal(size=(64, 3)).astype("float32")
y = x.sum(axis=1, keepdims=True)

def keras_model(config):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    return model

def torch_model(config):
    return torch.nn.Linear(3, 1)

made = {
    "mxnet": lambda workers: ForMXNet.from_mxnet(
        config=create_config(optimizer_params={"learning_rate": 0.1}), model_creator=lambda config: gluon.nn.Dense(1),
        loss_creator=lambda config: gluon.loss.L2Loss(), num_workers=workers, num_servers=1),
    "torch": lambda workers: ForTorch.from_torch(
        model=torch_model, optimizer=lambda model, config: torch.optim.SGD(model.parameters(), 0.1),
        loss=torch.nn.MSELoss(), backend="torch_distributed", num_workers=workers),
    "tensorflow": lambda workers: ForKeras.from_keras(model_creator=keras_model, num_workers=workers),
}

if __name__ == "__main__":
    init_orca_context("embedded", cores=2)
    for name, workers in [("mxnet", 1), ("tensorflow", 1), ("torch", 1), ("mxnet", 2)]:
        est = made[name](workers)
        est.fit({"x": x, "y": y}, epochs=12, batch_size=16)
        error = float(np.abs(np.asarray(est.predict(x)).reshape(-1, 1) - y).max())
        print(name, "learned" if error < 0.3 else f"is off by {error}")
        assert est.get_model() is not None
    stop_orca_context()
"""


def test_one_workflow_of_three_frameworks(tmp_path):
    script = tmp_path / "workflow.py"
    script.write_text(WORKFLOW)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["mxnet", "learned", "tensorflow", "learned", "torch", "learned", "mxnet", "learned"]
