"""A conda environment as one archive that a cluster can unpack."""

from __future__ import annotations

import tempfile
from pathlib import Path

from zoo.orca.errors import MissingPackageError
from zoo.orca.optional import require


def pack_conda_environment(conda_name: str) -> Path:
    """Pack the named conda environment into a fresh temporary folder; the caller removes the folder."""
    try:
        conda_pack = require("conda_pack", f"Shipping the conda environment {conda_name!r} to YARN")
    except MissingPackageError as error:
        raise MissingPackageError(
            f"{error} Or pack it yourself and give the archive: conda pack -n {conda_name} -o env.tar.gz, then"
            ' init_orca_context("yarn-client", penv_archive="env.tar.gz", ...)',
            name="conda_pack",
        ) from error
    archive = Path(tempfile.mkdtemp(prefix="orca-conda-")) / "python_env.tar.gz"
    conda_pack.pack(name=conda_name, output=str(archive))
    return archive
