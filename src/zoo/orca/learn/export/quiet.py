"""Writing models without the chatter of the libraries that do it."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator

_LOGGERS = ("torch.onnx", "torch._export", "torch.export", "torch.fx", "nncf", "onnxscript", "onnx_ir")


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Keep back warnings, remarks and progress bars; errors still come as exceptions."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    # OpenVINO's converter sets the root's level and never back: the user's other libraries would fall silent.
    before = [(logger, logger.level) for logger in (*loggers, logging.getLogger())]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    aside = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(aside), contextlib.redirect_stderr(aside):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in before:
            logger.setLevel(level)
