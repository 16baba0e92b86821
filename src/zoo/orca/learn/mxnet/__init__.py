"""MXNet on every engine: `Estimator.from_mxnet`.

Import it before `mxnet`, which was written for NumPy 1: from then on `import mxnet` works beside NumPy 2.
"""

from zoo.orca.learn.mxnet.estimator import Estimator, MXNetEstimator, create_config
from zoo.orca.mxnet_library import ready_for_import
from zoo.orca.names import public_names

__all__ = ["Estimator", "MXNetEstimator", "create_config"]

ready_for_import()

__dir__ = public_names(globals())
