"""Pure-Python stand-ins for the BigDL library."""
