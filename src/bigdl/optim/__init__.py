"""Optimization methods, triggers, validation methods and summaries of the BigDL interface."""
