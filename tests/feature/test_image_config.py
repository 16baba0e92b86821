"""ImageConfigure: processors around a model's predictions."""

from __future__ import annotations

import numpy as np
import pytest

from zoo.feature.common import ChainedPreprocessing
from zoo.feature.image import ImageChannelNormalize, ImageMatToTensor, ImagePreprocessing, LocalImageSet
from zoo.models.image.common.image_config import ImageConfigure
from zoo.orca.errors import InvalidArgumentError


class Halve(ImagePreprocessing):
    def transform(self, feature):
        feature["predict"] = feature["predict"] / 2
        return feature


def test_images_go_through_both_processors():
    import torch

    images = LocalImageSet([np.full((2, 2, 3), number) for number in (1, 2, 3)])
    before = ChainedPreprocessing([ImageChannelNormalize(1.0, 1.0, 1.0), ImageMatToTensor()])
    configure = ImageConfigure(pre_processor=before, post_processor=Halve(), batch_per_partition=2)
    found = configure.predict(torch.nn.Flatten(), images).get_predict()
    np.testing.assert_allclose([output for _, output in found], np.repeat([[0], [0.5], [1]], 12, axis=1))
    assert ImageConfigure().pre_processor is None
    with pytest.raises(InvalidArgumentError, match="pre_processor must be a Preprocessing"):
        ImageConfigure(pre_processor="resize")
