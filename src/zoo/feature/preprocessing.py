"""Preprocessings: how a value of a row, or an image, becomes what a model takes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from bigdl.nn.spelling import answers_spelling
from bigdl.util.common import Sample
from zoo.orca.errors import InvalidArgumentError

Sizes = Sequence[int] | Sequence[Sequence[int]] | None


class Preprocessing:
    """A step between data and a model; subclasses have a `transform`.

    Call it with an ImageSet to transform the images, or give it to NNEstimator, FeatureSet or ImageSet.

    Attributes:
        sizes: the size of the tensor, or of several, that it makes of a row's numbers; None if it does more than that.

    Example:
        class Halve(Preprocessing):
            def transform(self, value):
                return np.asarray(value) / 2

        NNEstimator(model, criterion, ChainedPreprocessing([Halve(), ArrayToTensor([2])]))
    """

    sizes: Sizes = None

    def __init__(self, bigdl_type: str = "float", *args: Any):
        self.bigdl_type = bigdl_type

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = answers_spelling(cls.__init__)  # type: ignore[method-assign]

    def transform(self, value: Any) -> Any:
        """What becomes of one value."""
        raise NotImplementedError(f"{type(self).__name__} must have a method transform(value)")

    def chain(self, *others: Preprocessing) -> ChainedPreprocessing:
        """This step and then others."""
        return ChainedPreprocessing([self, *others])

    def reseed(self, entropy: Sequence[int]) -> None:
        """Draw from this seed from now on, where something is drawn."""

    def __call__(self, images: Any) -> Any:
        """A new ImageSet of transformed images; any other value is transformed itself."""
        return images.transform(self) if hasattr(images, "is_distributed") else self.transform(images)

    def __repr__(self) -> str:
        given = {name: value for name, value in vars(self).items() if not name.startswith("_") and name != "bigdl_type"}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in given.items())})"


class ChainedPreprocessing(Preprocessing):
    """Steps one after the other.

    Args:
        transformers: Preprocessings.
        seed: what the random steps among them draw from, so that a run can be repeated.

    Example: ``ChainedPreprocessing([ImageResize(256, 256), ImageCenterCrop(224, 224), ImageMatToTensor()])``
    """

    def __init__(self, transformers: Sequence[Preprocessing], bigdl_type: str = "float", *, seed: int | None = None):
        super().__init__(bigdl_type)
        self.transformers = [transformers] if isinstance(transformers, Preprocessing) else list(transformers)
        for each in self.transformers:
            if not isinstance(each, Preprocessing):
                raise InvalidArgumentError(
                    "ChainedPreprocessing takes a list of Preprocessings, such as [SeqToTensor([2]), TensorToSample()],"
                    f" but {each!r} is a {type(each).__name__}. A transformer of bigdl.transform.vision.image goes in "
                    "as BigDLAdapter(transformer)."
                )
        if seed is not None:
            # Copies: another chain of the same steps may have another seed, or none.
            self.transformers = [copy.deepcopy(each) for each in self.transformers]
            self.reseed([seed])

    @property
    def sizes(self) -> Sizes:  # type: ignore[override]
        """Those of the first step, where the others only change the form."""
        if self.transformers and all(isinstance(each, FormOnly) for each in self.transformers[1:]):
            return self.transformers[0].sizes
        return None

    def transform(self, value: Any) -> Any:
        for each in self.transformers:
            value = each.transform(value)
        return value

    def reseed(self, entropy: Sequence[int]) -> None:
        for number, each in enumerate(self.transformers):
            each.reseed([*entropy, number])


class ToTensor(Preprocessing):
    """Numbers as a tensor of a size."""

    def __init__(self, size: Sequence[int] = (), bigdl_type: str = "float"):
        super().__init__(bigdl_type)
        self.size = list(size)

    @property
    def sizes(self) -> Sizes:  # type: ignore[override]
        return self.size

    def transform(self, value: Any) -> np.ndarray:
        numbers = _numbers(value)
        return shaped(numbers, self.size, type(self).__name__) if self.size else numbers


class SeqToTensor(ToTensor):
    """A number, or a sequence of them, as a tensor; without a size it keeps its own.

    Example: ``SeqToTensor([1, 28, 28])``
    """


class ArrayToTensor(ToTensor):
    """An array of numbers as a tensor of a size."""

    def __init__(self, size: Sequence[int], bigdl_type: str = "float"):
        super().__init__(size)


class MLlibVectorToTensor(ToTensor):
    """An ML vector as a tensor of a size."""

    def __init__(self, size: Sequence[int], bigdl_type: str = "float"):
        super().__init__(size)


class ScalarToTensor(Preprocessing):
    """A number as a tensor of one value."""

    sizes = [1]

    def transform(self, value: Any) -> np.ndarray:
        return shaped(_numbers(value), [1], "ScalarToTensor")


class SeqToMultipleTensors(Preprocessing):
    """A sequence of numbers as several tensors, cut from it one after the other.

    Example: ``SeqToMultipleTensors([[2], [3, 4]])``
    """

    def __init__(self, size: Sequence[Sequence[int]] = (), bigdl_type: str = "float"):
        super().__init__(bigdl_type)
        self.size = [list(each) for each in size]

    @property
    def sizes(self) -> Sizes:  # type: ignore[override]
        return self.size

    def transform(self, value: Any) -> list[np.ndarray]:
        numbers = _numbers(value).reshape(-1)
        widths = [int(np.prod(each)) for each in self.size]
        shaped(numbers, [sum(widths)], "SeqToMultipleTensors")
        parts = np.split(numbers, np.cumsum(widths)[:-1])
        return [part.reshape(each) for part, each in zip(parts, self.size, strict=True)]


class FormOnly(Preprocessing):
    """A step that leaves the numbers as they are."""

    def transform(self, value: Any) -> Any:
        return value


class TensorToSample(FormOnly):
    """A tensor as a Sample without a label."""

    def transform(self, value: Any) -> Sample:
        return Sample.from_ndarray(value, [])


class ToTuple(FormOnly):
    """A value as (value, None): a feature without a label."""

    def transform(self, value: Any) -> tuple[Any, None]:
        return value, None


class SampleToMiniBatch(FormOnly):
    """Samples in batches, which training makes itself; the size is kept for who asks."""

    def __init__(self, batch_size: int, bigdl_type: str = "float"):
        super().__init__(bigdl_type)
        if batch_size < 1:
            raise InvalidArgumentError(f"batch_size must be 1 record or more, but is {batch_size!r}.")
        self.batch_size = batch_size


class FeatureLabelPreprocessing(Preprocessing):
    """A step for the features and another for the label: (feature, label) becomes a Sample.

    Example: ``FeatureLabelPreprocessing(SeqToTensor([2]), ScalarToTensor())``
    """

    def __init__(self, feature_transformer: Preprocessing, label_transformer: Preprocessing, bigdl_type: str = "float"):
        super().__init__(bigdl_type)
        self.feature_transformer = feature_transformer
        self.label_transformer = label_transformer

    def transform(self, value: Any) -> Sample:
        feature, label = value
        labels = [] if label is None else self.label_transformer.transform(label)
        return Sample.from_ndarray(self.feature_transformer.transform(feature), labels)


class FeatureToTupleAdapter(Preprocessing):
    """A step for (feature, label), used on features alone: these come with no label."""

    def __init__(self, sample_transformer: Preprocessing, bigdl_type: str = "float"):
        super().__init__(bigdl_type)
        self.sample_transformer = sample_transformer

    def transform(self, value: Any) -> Any:
        return self.sample_transformer.transform((value, None))


class BigDLAdapter(Preprocessing):
    """A transformer of `bigdl.transform.vision.image` as a Preprocessing."""

    def __init__(self, bigdl_transformer: Any, bigdl_type: str = "float"):
        super().__init__(bigdl_type)
        self.bigdl_transformer = bigdl_transformer

    def transform(self, value: Any) -> Any:
        return self.bigdl_transformer(value)

    def reseed(self, entropy: Sequence[int]) -> None:
        if hasattr(self.bigdl_transformer, "reseed"):
            self.bigdl_transformer.reseed(entropy)


def shaped(numbers: np.ndarray, size: Sequence[int], who: str) -> np.ndarray:
    """Numbers in a size, or an error that says what does not fit."""
    if numbers.size != int(np.prod(size)):
        raise InvalidArgumentError(
            f"{who} makes tensors of size {list(size)}, {int(np.prod(size))} numbers, but a value has {numbers.size}. "
            "Give the size that fits the data."
        )
    return numbers.reshape(size)


def _numbers(value: Any) -> np.ndarray:
    return np.asarray(value.toArray() if hasattr(value, "toArray") else value, np.float32)
