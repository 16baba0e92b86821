"""A model of OpenVINO on its way to where rows are predicted."""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Mapping
from typing import Any

from zoo.orca.errors import ModelFileError
from zoo.orca.learn.openvino.model_file import ModelFile, core, describe, told
from zoo.orca.learn.openvino.runner import Compiled, Runner

# The result must not depend on the machine: where a CPU has bfloat16, OpenVINO would use it unasked.
EXACT = {"INFERENCE_PRECISION_HINT": "f32"}
# Devices that hand a model on to others, of which the CPU may be one.
CHOOSERS = ("AUTO", "MULTI", "HETERO")

# Tables and arrays are read differently by one and the same model; who uses it keeps it.
_compiled: weakref.WeakValueDictionary[str, Compiled] = weakref.WeakValueDictionary()


class OpenVINOPredictor:
    """A model and how it is to be compiled; it is compiled once in each process.

    Args:
        device: where it runs, in OpenVINO's words.
        config: properties for OpenVINO beside ours, and before them.
        flat_rows: see `Signature.arrange`.
    """

    takes_threads = True
    uses_all_cores = True

    def __init__(
        self, file: ModelFile, device: str = "CPU", config: Mapping[str, Any] | None = None, flat_rows: bool = False
    ):
        self._file = file
        self._device = device
        self._config = dict(config or {})
        self._flat_rows = flat_rows
        said = repr((device, sorted(self._config.items()), flat_rows))
        self.key = hashlib.sha256((file.key + said).encode()).hexdigest()

    def load(self, threads: int | None = None) -> Runner:
        """The compiled model, for so many threads of the CPU; for all that this process may use by default."""
        properties = self._properties(threads)
        said = repr((self._file.key, self._device, sorted(properties.items(), key=str)))
        compiled = _compiled.get(said)
        if compiled is None:
            compiled = _compiled[said] = self._compile(properties)
        return Runner(compiled, self._flat_rows)

    def _compile(self, properties: dict[str, Any]) -> Compiled:
        model = self._file.open()
        signature = describe(model)
        has_state = bool(model.get_variables())
        try:
            return Compiled(core().compile_model(model, self._device, properties), signature, has_state)
        except RuntimeError as error:
            ways = ["Export it anew"] if self._device == "CPU" else ['Try device="CPU"']
            advice = " or ".join([*ways, *["leave config out"] * bool(self._config)])
            raise ModelFileError(
                f"OpenVINO could not make {self._file.path} ready for device {self._device!r} with config="
                f"{self._config}; the devices here are {', '.join(core().available_devices) or 'none'}. "
                f"{advice}. OpenVINO says: {told(error)}"
            ) from error

    def _properties(self, threads: int | None) -> dict[str, Any]:
        properties: dict[str, Any] = {"PERFORMANCE_HINT": "THROUGHPUT", **EXACT}
        cores = len(os.sched_getaffinity(0))
        share = min(threads or cores, cores)
        # Processes that share a machine would pin their threads to the same first cores.
        cpu = {"INFERENCE_NUM_THREADS": share, "ENABLE_CPU_PINNING": share == cores}
        if self._device == "CPU":
            properties |= cpu
        elif self._device.partition(":")[0] in CHOOSERS:
            properties["DEVICE_PROPERTIES"] = {"CPU": cpu}
        return properties | self._config
