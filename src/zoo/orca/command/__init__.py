"""The command `orca`: `orca doctor`, `orca demo`, `orca bench`."""

from __future__ import annotations

# The engines as the command line names them, and the mode of `init_orca_context` that starts each.
MODE_OF = {"local": "embedded", "spark": "local", "ray": "ray"}
