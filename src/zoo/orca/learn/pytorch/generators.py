"""The random numbers that training draws: where the generators start in an epoch, and where they stand within it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def seed_generators(seed: int) -> None:
    """Start torch's generators (on GPUs too), numpy's and Python's."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def generators_state(device: torch.device) -> dict[str, Any]:
    """Where the generators stand, as tensors and plain data."""
    numpy_state: Any = np.random.get_state(legacy=False)
    state = {
        "torch": torch.get_rng_state(),
        "numpy": [
            torch.from_numpy(numpy_state["state"]["key"].astype(np.int64)),
            int(numpy_state["state"]["pos"]),
            int(numpy_state["has_gauss"]),
            float(numpy_state["gauss"]),
        ],
        "random": random.getstate(),
    }
    return state | ({"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def load_generators(state: dict[str, Any], device: torch.device) -> None:
    """Let the generators go on from where they stood."""
    torch.set_rng_state(state["torch"])
    key, *rest = state["numpy"]
    np.random.set_state(("MT19937", key.numpy().astype(np.uint32), *rest))
    version, internal, gauss = state["random"]
    random.setstate((version, tuple(internal), gauss))
    if "cuda" in state and device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)
