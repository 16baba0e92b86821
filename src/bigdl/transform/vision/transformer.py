"""What every transformation of images has: arguments, chaining, and randomness that can be repeated."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, dataclass_transform

import numpy as np

from bigdl.nn.spelling import answers_spelling
from bigdl.transform.vision.feature import ImageFeature
from zoo.orca.errors import InvalidArgumentError


@dataclass_transform(eq_default=False, field_specifiers=(field,))
@dataclass(eq=False)
class FeatureTransformer:
    """A step on the way of an image to a model; call it with an ImageFeature, an image frame or an image set.

    The annotated names of a subclass are its constructor's arguments, as in a dataclass; `apply` does the work.

    Example:
        class Darker(FeatureTransformer):
            factor: float = 0.5

            def apply(self, feature):
                feature.put_mat(feature.mat() * self.factor)
                return feature

        frame = ImageFrame.read("photos/*.jpg").transform(Darker(0.3))
    """

    bigdl_type: str = field(default="float", kw_only=True, repr=False)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__annotations__" in vars(cls):
            dataclass(eq=False)(cls)
        if "__init__" in vars(cls):
            cls.__init__ = answers_spelling(cls.__init__)  # type: ignore[method-assign]

    def apply(self, feature: Any) -> Any:
        """The feature after this step; it may be changed in place."""
        raise NotImplementedError(f"{type(self).__name__} must have a method apply(feature)")

    def __call__(self, images: Any) -> Any:
        """The transformed feature (a new one), frame or set."""
        if isinstance(images, ImageFeature):
            return self.apply(images.copy())
        if hasattr(images, "is_distributed"):
            return images.transform(self)
        raise InvalidArgumentError(
            f"{type(self).__name__} takes an ImageFeature, an ImageFrame or an ImageSet, but got a "
            f"{type(images).__name__}."
        )

    def reseed(self, entropy: Sequence[int]) -> None:
        """Draw from this seed from now on, where something is drawn."""


class MatTransformer(FeatureTransformer):
    """A step that changes the pixels: `change` of a mat of rows, columns and channels (BGR) gives another."""

    def apply(self, feature: ImageFeature) -> ImageFeature:
        feature.put_mat(self.change(feature.mat()))
        return feature

    def change(self, mat: np.ndarray) -> np.ndarray:
        """The pixels after this step; those given are left as they are."""
        raise NotImplementedError(f"{type(self).__name__} must have a method change(mat)")


class RandomStep(FeatureTransformer):
    """A step with something random in it.

    Args:
        seed: what random numbers start from. Each record of a frame draws its own, the same whenever it is computed;
            without a seed another run draws other numbers.
    """

    seed: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        RandomStep.reseed(self, [secrets.randbits(63)])
        if self.seed is not None:
            self.reseed([self.seed])

    def reseed(self, entropy: Sequence[int]) -> None:
        self._entropy = list(entropy)
        self._stream = np.random.default_rng(self._entropy)

    def generator(self, feature: ImageFeature) -> np.random.Generator:
        """The random numbers of a record; features that are in no frame share one stream."""
        if feature.record is None:
            return self._stream
        return np.random.default_rng([*self._entropy, *feature.record])


class RandomMatTransformer(RandomStep):
    """A random step that changes the pixels."""

    def apply(self, feature: ImageFeature) -> ImageFeature:
        feature.put_mat(self.change(feature.mat(), self.generator(feature)))
        return feature

    def change(self, mat: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """The pixels after this step; those given are left as they are."""
        raise NotImplementedError(f"{type(self).__name__} must have a method change(mat, random)")


class Pipeline(FeatureTransformer):
    """Steps one after the other.

    Args:
        transformers: FeatureTransformers.
        seed: what the random steps among them draw from; each draws numbers of its own.

    Example:
        Pipeline([BytesToMat(), Resize(256, 256), RandomCrop(224, 224), MatToTensor()], seed=1)
    """

    transformers: Sequence[FeatureTransformer]
    seed: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.transformers, FeatureTransformer):
            self.transformers = [self.transformers]
        self.transformers = list(self.transformers)
        for each in self.transformers:
            check_transformer(each, type(self).__name__)
        if self.seed is not None:
            # Copies: another chain of the same steps may have another seed, or none.
            self.transformers = [copy.deepcopy(each) for each in self.transformers]
            self.reseed([self.seed])

    def apply(self, feature: Any) -> Any:
        for transformer in self.transformers:
            feature = transformer.apply(feature)
        return feature

    def reseed(self, entropy: Sequence[int]) -> None:
        for number, transformer in enumerate(self.transformers):
            transformer.reseed([*entropy, number])


class RandomTransformer(RandomStep):
    """Another step, with a probability; else the image is left as it is.

    Example: ``RandomTransformer(HFlip(), 0.5)``
    """

    transformer: FeatureTransformer
    prob: float

    def __post_init__(self) -> None:
        check_transformer(self.transformer, type(self).__name__)
        check_probability(self.prob)
        super().__post_init__()

    def apply(self, feature: ImageFeature) -> ImageFeature:
        return self.transformer.apply(feature) if self.generator(feature).random() < self.prob else feature

    def reseed(self, entropy: Sequence[int]) -> None:
        super().reseed(entropy)
        self.transformer.reseed([*entropy, 0])


def check_transformer(given: Any, where: str) -> None:
    """Raise a typed error for what is no step."""
    if not isinstance(given, FeatureTransformer):
        raise InvalidArgumentError(
            f"{where} takes FeatureTransformers, such as Resize(256, 256), but was given a {type(given).__name__}."
        )


def check_probability(prob: Any) -> None:
    """Raise a typed error for what is no probability."""
    if not isinstance(prob, int | float | np.number) or not 0 <= prob <= 1:
        raise InvalidArgumentError(f"prob must be a probability, from 0 to 1, but is {prob!r}.")
