"""`python -m zoo.orca` is the command `orca`."""

from __future__ import annotations

import sys

from zoo.orca.command.main import main

if __name__ == "__main__":
    sys.exit(main())
