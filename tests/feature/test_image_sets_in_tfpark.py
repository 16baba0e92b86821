"""Image sets through TFNet, TFPredictor, TFEstimator and KerasModel: predictions come back to the images."""

from __future__ import annotations

import numpy as np
import pytest

from zoo.feature.image import ImageMatToTensor, ImageSet, ImageSetToSample, LocalImageSet
from zoo.orca.learn.records import Records

pytestmark = pytest.mark.engines("local")
IMAGES = [np.full((2, 2, 3), number, np.float32) for number in range(2)]
LABELS = [np.array([number]) for number in range(2)]


def samples(images: ImageSet) -> ImageSet:
    return images.transform(ImageMatToTensor(format="NHWC")).transform(ImageSetToSample())


def far_samples() -> ImageSet:
    """On one worker, since each loads TensorFlow; what local sets do with predictions is in test_image_set.py."""
    return samples(ImageSet.from_rdds(Records.of(IMAGES, 1), Records.of(LABELS, 1)))


def predictions(images):
    assert isinstance(images, ImageSet)
    found = images.get_predict()
    return [prediction for _, prediction in (found if isinstance(found, list) else found.collect())]


def test_predictions_of_graphs(engine, tmp_path):
    import tensorflow as tf2

    from zoo.tfpark import TFDataset, TFEstimator, TFNet, TFPredictor
    from zoo.tfpark.estimator import EstimatorSpec

    tf = tf2.compat.v1
    expected = np.arange(2) * 12.0
    images = far_samples()
    pair = {"image": (tf.float32, [2, 2, 3]), "label": (tf.int32, [1])}
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None, 2, 2, 3])
        net = TFNet.from_session(session, [x], [tf.reduce_sum(x, axis=[1, 2, 3])])
        for each in (images, samples(LocalImageSet(IMAGES, LABELS))):
            np.testing.assert_allclose(predictions(net.predict(each, batch_per_thread=2)), expected)
        dataset = TFDataset.from_image_set(images, **pair, batch_per_thread=2)
        outputs = [tf.reduce_sum(dataset.feature_tensors, axis=[1, 2, 3])]
        found = TFPredictor(session, outputs, dataset=dataset).predict()
        np.testing.assert_allclose(predictions(found), expected)
        records = Records(dataset.rows.records()).collect()
        assert [label.tolist() for _, label in records] == [[0], [1]]
        assert records[0][1].dtype == np.int32

    def model_fn(features, labels, mode):
        total = tf.reduce_sum(features, axis=[1, 2, 3])
        loss = tf.reduce_mean(total * tf.get_variable("scale", [], initializer=tf.ones_initializer()))
        return EstimatorSpec(mode, {"sum": total}, loss)

    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.get_or_create_global_step()
        model_fn(tf.placeholder(tf.float32, [None, 2, 2, 3]), None, "infer")
        session.run(tf.global_variables_initializer())
        saved = tf.train.Saver().save(session, str(tmp_path / "model.ckpt"))
    found = TFEstimator.from_model_fn(model_fn).predict(
        lambda mode: TFDataset.from_image_set(images, **pair, batch_per_thread=2), checkpoint_path=saved
    )
    np.testing.assert_allclose([each["sum"] for each in predictions(found)], expected)


def test_predictions_of_keras(engine):
    import keras
    import tensorflow as tf

    from zoo.tfpark import KerasModel, TFDataset

    layers = [keras.Input((2, 2, 3)), keras.layers.Flatten(), keras.layers.Dense(1, kernel_initializer="ones")]
    model = KerasModel(keras.Sequential(layers))
    dataset = TFDataset.from_image_set(far_samples(), (tf.float32, [2, 2, 3]), batch_per_thread=2)
    np.testing.assert_allclose(np.ravel(predictions(model.predict(dataset))), np.arange(2) * 12.0)
