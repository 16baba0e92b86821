#!/usr/bin/env bash
# Installs Horovod into the environment of the given Python: scripts/horovod.sh .venv/bin/python [tensorflow]
#
# PyPI has Horovod's source alone, and building it takes minutes. The wheel is therefore kept outside the clone, one for each
# version of Python and torch, so that a machine builds it once. With "tensorflow" it is built for TensorFlow too, which takes
# longer; where such a wheel lies already, it is taken anyway, for it does all that the other does. Needs torch (and
# tensorflow) in that environment, and a C++ compiler.
set -euo pipefail

python=${1:?which Python to install into, e.g. scripts/horovod.sh .venv/bin/python}
wanted=${2:-torch}
version=0.28.1

pip=("$python" -m pip --quiet --disable-pip-version-check)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/orca/wheels
# Versions by their metadata: importing tensorflow takes seconds. A wheel fits one version of TensorFlow alone.
read -r key tensorflow < <("$python" -c 'import platform, sys
from importlib.metadata import PackageNotFoundError, version
import torch
try:
    tensorflow = version("tensorflow")
except PackageNotFoundError:
    tensorflow = ""
print(f"cp{sys.version_info[0]}{sys.version_info[1]}-torch{torch.__version__}-{platform.machine()}", tensorflow)')
with_tensorflow=$cache/horovod-$version-$key-tensorflow$tensorflow

# Its CMake files force C++14, which the headers of both frameworks refuse; the compiler launcher is the one place to
# change that from outside. One file is for versions of TensorFlow's XLA that are gone: without the macro it is empty.
launcher_torch='bash;-c;exec "${@/#-std=c++14/-std=c++17}" -g0 -w;bash'
launcher_tensorflow='bash;-c;[[ $* = *xla_mpi_ops.cc* ]] && exec "${@/#-DTENSORFLOW_VERSION=*/-w}" -g0 || '"${launcher_torch#bash;-c;}"

build() { # the folder to keep the wheel in, the launcher, further settings
    command -v c++ >/dev/null || { echo "horovod: building it needs a C++ compiler (c++), e.g. apt-get install g++" >&2; exit 1; }
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    "${pip[@]}" install setuptools wheel packaging
    # A cmake of our own, so that every machine builds with the same one and the environment is not littered with it.
    "${pip[@]}" install --target "$work/cmake" 'cmake>=3.25,<5'
    if ! env PATH="$work/cmake/bin:$PATH" PYTHONPATH="$work/cmake" TMPDIR="$work" \
        HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_MXNET=1 "${@:3}" \
        CMAKE_POLICY_VERSION_MINIMUM=3.5 CMAKE_CXX_COMPILER_LAUNCHER="$2" \
        "$python" -m pip --disable-pip-version-check wheel --no-cache-dir --no-deps --no-build-isolation \
        --no-binary horovod --wheel-dir "$work/wheel" "horovod==$version" >"$work/log" 2>&1; then
        tail -n 60 "$work/log" >&2
        echo "horovod: building horovod==$version into $1 failed; the end of its log is above" >&2
        exit 1
    fi
    mkdir -p "$1"
    mv "$work"/wheel/horovod-*.whl "$1/"
}

is_there() { compgen -G "$1/horovod-*.whl" >/dev/null; }

if [[ $wanted = tensorflow ]]; then
    [[ -n $tensorflow ]] || { echo "horovod: building it for TensorFlow needs tensorflow in $python's environment" >&2; exit 1; }
    folder=$with_tensorflow
elif [[ -n $tensorflow ]] && is_there "$with_tensorflow"; then
    folder=$with_tensorflow
else
    folder=$cache/horovod-$version-$key
fi
if ! is_there "$folder"; then
    if [[ $folder = "$with_tensorflow" ]]; then
        echo "building horovod $version for $key and tensorflow $tensorflow (once for this machine, about 10 minutes) ..."
        build "$folder" "$launcher_tensorflow" HOROVOD_WITH_TENSORFLOW=1
    else
        echo "building horovod $version for $key (once for this machine, about 4 minutes) ..."
        build "$folder" "$launcher_torch" HOROVOD_WITHOUT_TENSORFLOW=1
    fi
fi
# The two builds have one version, so that pip must be told that this one is another.
"${pip[@]}" install --force-reinstall --no-deps "$folder"/horovod-*.whl
"${pip[@]}" install "$folder"/horovod-*.whl
"$python" -c 'import horovod.torch'
if [[ $folder = "$with_tensorflow" ]]; then
    chatter=$("$python" -c 'import horovod.tensorflow.keras' 2>&1) || { echo "$chatter" >&2; exit 1; }
fi
