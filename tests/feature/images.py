"""Folders of small images for tests."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np


def write_images(folder: Path) -> dict[str, np.ndarray]:
    """Three images of each of two classes, of different sizes, and a file that is none; returns {path: pixels}."""
    random = np.random.default_rng(1)
    written = {}
    for name in ("cats", "dogs"):
        (folder / name).mkdir()
        for number in range(3):
            pixels = random.integers(0, 256, (6 + number, 8, 3)).astype(np.uint8)
            path = folder / name / f"{number}.png"
            cv2.imwrite(str(path), pixels)
            written[str(path)] = pixels
        (folder / name / "list.txt").write_text("0.png 1.png 2.png")
    return written
