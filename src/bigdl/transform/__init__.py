"""Transformations of records before a model sees them; images are in `bigdl.transform.vision.image`."""
