"""PyTorch modules, losses and optimizers as models, criterions and optimization methods of the older front doors."""

from __future__ import annotations

from zoo.orca.names import public_names
from zoo.orca.optional import require

require("torch", "zoo.pipeline.api.torch")

from zoo.pipeline.api.torch import zoo_pickle_module  # noqa: E402 - says first what is missing
from zoo.pipeline.api.torch.torch_loss import TorchLoss  # noqa: E402
from zoo.pipeline.api.torch.torch_model import TorchModel  # noqa: E402
from zoo.pipeline.api.torch.torch_optim import TorchOptim  # noqa: E402

__all__ = ["TorchLoss", "TorchModel", "TorchOptim", "zoo_pickle_module"]

__dir__ = public_names(globals())
