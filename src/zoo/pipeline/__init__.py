"""Older front doors of the library, thin over zoo.orca and zoo.tfpark."""
