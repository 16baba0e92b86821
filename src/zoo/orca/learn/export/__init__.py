"""Deploying a trained model: `est.export` writes it for a runtime, and checks that its predictions agree."""

from zoo.orca.learn.export.exporting import Exporting
from zoo.orca.learn.export.formats import FORMATS
from zoo.orca.learn.export.report import ExportReport, Int8Loss
from zoo.orca.names import public_names

__all__ = ["FORMATS", "ExportReport", "Exporting", "Int8Loss"]

__dir__ = public_names(globals())
