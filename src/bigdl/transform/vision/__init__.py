"""Images; everything is imported from `bigdl.transform.vision.image`."""
