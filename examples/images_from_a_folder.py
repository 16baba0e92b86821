"""Image classification from a folder: one folder for each class, read by the workers, and a small convolutional net.

python examples/images_from_a_folder.py --engine local      # or spark, or ray
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from bigdl.nn.criterion import ClassNLLCriterion
from bigdl.nn.layer import (
    Layer,
    Linear,
    LogSoftMax,
    ReLU,
    Sequential,
    SpatialConvolution,
    SpatialMaxPooling,
    View,
)
from bigdl.optim.optimizer import Adam, MaxEpoch, Top1Accuracy
from zoo.feature.common import ChainedPreprocessing, FeatureSet
from zoo.feature.image import (
    ImageChannelNormalize,
    ImageHFlip,
    ImageMatToTensor,
    ImageRandomCrop,
    ImageRandomPreprocessing,
    ImageResize,
    ImageSet,
    ImageSetToSample,
)
from zoo.orca import init_orca_context, stop_orca_context
from zoo.pipeline.estimator import Estimator

CONTEXTS = {"local": "embedded", "spark": "local", "ray": "ray"}
CLASSES = ("bars", "discs", "stripes")


def draw(name: str, random: np.random.Generator) -> np.ndarray:
    """A noisy image of a class, of 32 to 40 pixels a side."""
    rows, columns = random.integers(32, 41, 2)
    image = random.integers(0, 90, (rows, columns, 3)).astype(np.uint8)
    colour = tuple(int(value) for value in random.integers(150, 256, 3))
    x, y = (int(value) for value in random.integers(12, 21, 2))
    if name == "discs":
        cv2.circle(image, (x, y), 7, colour, -1)
    elif name == "bars":
        cv2.rectangle(image, (x, 0), (x + 4, int(rows)), colour, -1)
    else:
        cv2.rectangle(image, (0, y), (int(columns), y + 4), colour, -1)
    return image


def write_images(folder: Path, count: int, seed: int) -> None:
    """So many images of each class, in a folder for each."""
    random = np.random.default_rng(seed)
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            cv2.imwrite(str(folder / name / f"{number:03d}.png"), draw(name, random))


def read_images(folder: Path, context: Any, augment: bool) -> ImageSet:
    """Images of one size, as samples with their labels; for training, some flipped and each cut a little otherwise."""
    random_steps = [ImageRandomPreprocessing(ImageHFlip(), 0.5), ImageRandomCrop(24, 24)]
    steps = [
        ImageResize(28, 28) if augment else ImageResize(24, 24),
        *(random_steps if augment else []),
        ImageChannelNormalize(80.0, 80.0, 80.0, 60.0, 60.0, 60.0),
        ImageMatToTensor(),
        ImageSetToSample(),
    ]
    images = ImageSet.read(str(folder), context, image_codec=1, with_label=True)
    return images.transform(ChainedPreprocessing(steps, seed=1))


def network() -> Sequential:
    """Images of (3, 24, 24) to the logarithms of three probabilities."""
    Layer.set_seed(1)
    return (
        Sequential()
        .add(SpatialConvolution(3, 8, 5, 5))
        .add(ReLU())
        .add(SpatialMaxPooling(4, 4, 4, 4))
        .add(View([8 * 5 * 5]))
        .add(Linear(8 * 5 * 5, len(CLASSES)))
        .add(LogSoftMax())
    )


def example(context: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder) / "train", 60, seed=1)
        write_images(Path(folder) / "test", 20, seed=2)
        train = read_images(Path(folder) / "train", context, augment=True)
        test = read_images(Path(folder) / "test", context, augment=False)
        print("classes:", ", ".join(f"{number} {name}" for name, number in train.label_map.items()))

        model = network()
        estimator = Estimator(model, Adam(0.01))
        estimator.train_imagefeature(FeatureSet.image_set(train), ClassNLLCriterion(), MaxEpoch(8), batch_size=30)
        (accuracy,) = estimator.evaluate_imagefeature(FeatureSet.image_set(test), [Top1Accuracy()], batch_size=30)
        print(f"held out: {accuracy.result:.2f} of {accuracy.total_num} images right")

        # The model that was given is the one that was trained; predictions come back to the images.
        predicted = model.predict_image(test.to_image_frame()).get_predict().collect()
        for uri, output in predicted[::20]:
            print(f"{Path(uri).relative_to(folder)} is one of the {CLASSES[output.argmax()]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=CONTEXTS, default="local", help="where to run (default: local)")
    context = init_orca_context(CONTEXTS[parser.parse_args().engine], cores=2)
    try:
        example(context)
    finally:
        stop_orca_context()


if __name__ == "__main__":
    main()
