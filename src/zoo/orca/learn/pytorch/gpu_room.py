"""How much is free on a worker's GPU. Torch is loaded only where there is one: without, this takes no time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zoo.orca.engine.worker import Worker


@dataclass(frozen=True)
class GPURoom:
    """Asked on a worker: the bytes that are free on the GPU it will use, None if it will use the CPU.

    Args:
        wanted: the device that was asked for; None is a GPU where there is one.
    """

    wanted: str | None

    def __call__(self, worker: Worker) -> int | None:
        if self.wanted is None and not Path("/dev/nvidiactl").exists():
            return None
        import torch

        from zoo.orca.learn.pytorch.devices import find_device

        device = find_device(self.wanted, worker.local_rank)
        return None if device.type == "cpu" else torch.cuda.mem_get_info(device)[0]
