"""TensorFlow's view of XShards."""
