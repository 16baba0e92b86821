#!/usr/bin/env bash
# Installs Horovod for PyTorch into the environment of the given Python: scripts/horovod.sh .venv/bin/python
#
# PyPI has Horovod's source alone, and building it takes minutes. The wheel is therefore kept outside the clone, one for each
# version of Python and torch, so that a machine builds it once. Needs torch in that environment, and a C++ compiler.
set -euo pipefail

python=${1:?which Python to install into, e.g. scripts/horovod.sh .venv/bin/python}
version=0.28.1

pip=("$python" -m pip --quiet --disable-pip-version-check)
key=$("$python" -c 'import platform, sys, torch
print(f"cp{sys.version_info[0]}{sys.version_info[1]}-torch{torch.__version__}-{platform.machine()}")')
cache=${XDG_CACHE_HOME:-$HOME/.cache}/orca/wheels/horovod-$version-$key

build() {
    command -v c++ >/dev/null || { echo "horovod: building it needs a C++ compiler (c++), e.g. apt-get install g++" >&2; exit 1; }
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    "${pip[@]}" install setuptools wheel packaging
    # A cmake of our own, so that every machine builds with the same one and the environment is not littered with it.
    "${pip[@]}" install --target "$work/cmake" 'cmake>=3.25,<5'
    # Its CMake files force C++14, which torch's headers refuse; the compiler launcher is the one place to change that from outside.
    if ! env PATH="$work/cmake/bin:$PATH" PYTHONPATH="$work/cmake" TMPDIR="$work" \
        HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 \
        CMAKE_POLICY_VERSION_MINIMUM=3.5 \
        CMAKE_CXX_COMPILER_LAUNCHER='bash;-c;exec "${@/#-std=c++14/-std=c++17}" -g0 -w;bash' \
        "$python" -m pip --disable-pip-version-check wheel --no-deps --no-build-isolation --no-binary horovod \
        --wheel-dir "$work/wheel" "horovod==$version" >"$work/log" 2>&1; then
        tail -n 60 "$work/log" >&2
        echo "horovod: building horovod==$version for $key failed; the end of its log is above" >&2
        exit 1
    fi
    mkdir -p "$cache"
    mv "$work"/wheel/horovod-*.whl "$cache/"
}

if ! ls "$cache"/horovod-*.whl >/dev/null 2>&1; then
    echo "building horovod $version for $key (once for this machine, about 4 minutes) ..."
    build
fi
"${pip[@]}" install "$cache"/horovod-*.whl
"$python" -c 'import horovod.torch'
