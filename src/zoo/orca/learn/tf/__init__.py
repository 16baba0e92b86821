"""TensorFlow 1 graphs and Keras models: see `zoo.orca.learn.tf.estimator`."""
