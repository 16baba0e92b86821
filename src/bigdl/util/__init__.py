"""Shared parts of the BigDL stand-ins."""
