"""Layer: what every layer does, over arrays, around a torch module over tensors."""

from __future__ import annotations

import functools
import inspect
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from bigdl.nn import prediction, weights
from bigdl.nn.criterion_base import as_tensors
from bigdl.nn.parts import Part, call, leaves, map_table
from bigdl.nn.spelling import check_arguments
from zoo.orca.errors import BatchError, InvalidArgumentError, OrcaError

#: Arguments with the weights and gradients to begin with.
INITIAL = ("init_weight", "init_bias", "init_grad_weight", "init_grad_bias")


def _recorded(constructor: Any) -> Any:
    """An `__init__` that answers unknown arguments, and remembers what the object was made with, to be saved."""
    signature = inspect.signature(constructor)
    own = signature.replace(parameters=list(signature.parameters.values())[1:])

    @functools.wraps(constructor)
    def recorded(self: Layer, *args: Any, **kwargs: Any) -> None:
        if "bigdl_type" not in own.parameters:
            kwargs.pop("bigdl_type", None)
        check_arguments(type(self).__name__, own, args, kwargs)
        # The class that was called comes first; those it calls in turn find its arguments there.
        if "arguments" not in vars(self):
            self.arguments = dict(own.bind(*args, **kwargs).arguments)
        constructor(self, *args, **kwargs)

    return recorded


class Layer:
    """A layer of a network, around a torch module.

    Attributes:
        module: the torch module; it takes and gives a tensor, or a list of tensors where BigDL says table.
        arguments: what the layer was made with.

    Example:
        >>> from bigdl.nn.layer import Linear
        >>> Linear(3, 2).forward(np.ones((4, 3))).shape
        (4, 2)
    """

    module: nn.Module
    arguments: dict[str, Any] = {}
    bigdl_type = "float"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = _recorded(cls.__init__)  # type: ignore[method-assign]

    def __init__(self, module: nn.Module, bigdl_type: str = "float"):
        self.module = module
        self.set_name(f"{type(self).__name__}{uuid.uuid4().hex[:8]}")

    @property
    def value(self) -> nn.Module:
        """The torch module, under the name of what used to be a handle on the JVM."""
        return self.module

    def __call__(self, x: Any = ()) -> Any:
        """A node of a graph: this layer, over one node or several."""
        from bigdl.nn.graph import Node

        return Node(self, x)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{type(self).__name__}({shown})"

    def __getstate__(self) -> dict[str, Any]:
        # What the last forward pass left behind belongs to this process.
        return {name: value for name, value in vars(self).items() if name != "_passed"}

    def set_name(self, name: str) -> Layer:
        """Give the layer a name, which `freeze`, `parameters` and graphs know it by."""
        self._name = name
        if isinstance(self.module, Part):
            self.module.layer_name = name
        return self

    def name(self) -> str:
        """The name given, or the class and eight letters."""
        return self._name

    @staticmethod
    def set_seed(seed: int = 123) -> None:
        """Seed torch's generator, from which weights, dropout and noise come."""
        torch.manual_seed(seed)

    def flattened_layers(self, include_container: bool = False) -> list[Layer]:
        """The layers below, each once; only this one where there are none below."""
        below = list(dict.fromkeys(layer for child in self._children() for layer in child.flattened_layers(True)))
        whole = [self, *below] if include_container or not below else below
        return whole if include_container else [layer for layer in whole if not layer._children() or layer is self]

    def _children(self) -> list[Layer]:
        """The layers that this one holds."""
        return []

    # -- passes -------------------------------------------------------------------------------------------------

    def forward(self, input: Any) -> Any:
        """The output for an array, or for a list of arrays where the layer takes several."""
        inputs = map_table(lambda tensor: tensor.requires_grad_(), as_tensors(input))
        outputs = self._run(inputs)
        self._passed = (inputs, outputs, weights.versions(self.module), self.module.training)
        return map_table(_as_array, outputs)

    def _run(self, inputs: Any) -> Any:
        try:
            return call(self.module, inputs)
        except OrcaError:
            raise
        except prediction.REFUSALS as error:
            raise BatchError(prediction.refused(self.name(), inputs, error)) from error

    def backward(self, input: Any, grad_output: Any) -> Any:
        """The input's gradient; the weights' gradients are added to those that are there already.

        The pass before, if it was over the same input, is the one gone back through: dropout drops the same values.
        """
        inputs, outputs = self._pass_of(input)
        given = leaves(as_tensors(grad_output))
        results = leaves(outputs)
        _check_gradients(results, given)
        for each in leaves(inputs):
            each.grad = None
        pairs = [(result, each) for result, each in zip(results, given, strict=True) if result.requires_grad]
        if pairs:
            torch.autograd.backward([result for result, _ in pairs], [each for _, each in pairs], retain_graph=True)
        penalty = self.module.penalty() if isinstance(self.module, Part) else None
        if penalty is not None:
            penalty.backward()
        return map_table(lambda x: np.zeros(x.shape, np.float32) if x.grad is None else x.grad.numpy().copy(), inputs)

    def _pass_of(self, input: Any) -> tuple[Any, Any]:
        inputs, outputs, versions, mode = vars(self).get("_passed") or (None, None, None, None)
        same = inputs is not None and versions == weights.versions(self.module) and mode == self.module.training
        if not same or not _equal(inputs, as_tensors(input)):
            self.forward(input)
            inputs, outputs, *_ = self._passed
        return inputs, outputs

    def training(self, is_training: bool = True) -> Layer:
        """Say whether the next passes are for training, which dropout and batch normalization care about."""
        self.module.train(is_training)
        return self

    def is_training(self) -> bool:
        """Whether passes are for training, as they are at first."""
        return self.module.training

    def evaluate(self, dataset: Any = None, batch_size: Any = None, val_methods: Any = None) -> Any:
        """Without arguments: end training mode, return self. With all of them: measure.

        Args:
            dataset: an RDD of Samples, or a list of them.
            val_methods: validation methods of `bigdl.optim.optimizer`; the results come in their order.
        """
        given = [each is not None for each in (dataset, batch_size, val_methods)]
        if not any(given):
            return self.training(False)
        if not all(given):
            raise InvalidArgumentError("Expected evaluate(), or all of evaluate(dataset, batch_size, val_methods)")
        from zoo.orca.learn.bigdl.records import evaluate_samples

        return evaluate_samples(self, dataset, batch_size, val_methods)

    # -- prediction ---------------------------------------------------------------------------------------------

    def predict(self, features: Any, batch_size: int = -1) -> Any:
        """What the layer gives for records: an array (a list for several inputs) or an RDD of Samples, likewise."""
        if prediction.is_local(features):
            return self.predict_local(features, batch_size)
        return self.predict_distributed(features, batch_size)

    def predict_class(self, features: Any, batch_size: int = -1) -> Any:
        """The class of each record, counted from 1: that with the highest output."""
        if prediction.is_local(features):
            return prediction.classes(self.predict_local(features, batch_size))
        return self.predict_distributed(features, batch_size).map(prediction.class_of)

    def predict_local(self, X: Any, batch_size: int = -1) -> Any:
        """What the layer gives for an array whose first dimension counts records."""
        with prediction.out_of_training(self.module):
            return prediction.predict_arrays(self._run, X, batch_size)

    def predict_class_local(self, X: Any, batch_size: int = -1) -> Any:
        """`predict_class` of arrays."""
        return self.predict_class(X, batch_size)

    def predict_distributed(self, data_rdd: Any, batch_size: int = -1) -> Any:
        """What the layer gives for an RDD of Samples: an RDD of arrays, in the same order."""
        from zoo.orca.learn.bigdl.records import predict_samples

        return predict_samples(self, data_rdd, batch_size)

    def predict_class_distributed(self, data_rdd: Any, batch_size: int = -1) -> Any:
        """`predict_class` of an RDD of Samples."""
        return self.predict_class(data_rdd, batch_size)

    def predict_image(
        self,
        image_frame: Any,
        output_layer: str | None = None,
        share_buffer: bool = False,
        batch_per_partition: int = 4,
        predict_key: str = "predict",
    ) -> Any:
        """The image frame with a prediction for each image, of the named layer where one is named."""
        from bigdl.transform.vision.image import predict_frame

        module = self.module if output_layer is None else self._up_to(output_layer).module
        return predict_frame(module, image_frame, None, batch_per_partition, predict_key)

    def _up_to(self, name: str) -> Layer:
        """The part of the network that ends in the named layer."""
        raise InvalidArgumentError(f"{self.name()} has no layers of its own, so none of name '{name}'.")

    # -- weights ------------------------------------------------------------------------------------------------

    def get_weights(self) -> list[np.ndarray]:
        """Copies of the weights: weight, bias, and so on through the layers."""
        return [weights.shown(owner, name) for owner, name in weights.places(self.module)]

    def set_weights(self, new_weights: Sequence[Any]) -> None:
        """Set the weights, given as `get_weights` returns them."""
        weights.assign(self.name(), weights.places(self.module), new_weights)

    def parameters(self) -> dict[str, dict[str, np.ndarray]]:
        """The weights and gradients by layer name: {name: {"weight", "bias", "gradWeight", "gradBias"}}."""
        found = {layer.name(): weights.table(layer.module) for layer in self.flattened_layers()}
        return {name: table for name, table in found.items() if table}

    def is_with_weights(self) -> bool:
        """Whether there are weights to learn."""
        return any(True for _ in self.module.parameters())

    def zero_grad_parameters(self) -> None:
        """Set the gradients of the weights to zero."""
        for weight in self.module.parameters():
            weight.grad = torch.zeros_like(weight)

    def update_parameters(self, learning_rate: float) -> None:
        """Take a step against the gradients; what is frozen stays."""
        with torch.no_grad():
            for weight in self.module.parameters():
                if weight.grad is not None and weight.requires_grad:
                    weight.sub_(weight.grad, alpha=learning_rate)

    def reset(self) -> Layer:
        """Begin with new weights."""
        for part in self.module.modules():
            if isinstance(part, Part):
                part.reset()
            elif hasattr(part, "reset_parameters"):
                part.reset_parameters()
        return self

    def set_init_method(self, weight_init_method: Any = None, bias_init_method: Any = None) -> Layer:
        """Say how weights and biases begin (`bigdl.nn.initialization_method`), and begin anew."""
        methods = {"w": weight_init_method, "u": weight_init_method, "b": bias_init_method}
        self._part("set_init_method").init_methods.update({k: v for k, v in methods.items() if v is not None})
        return self.reset()

    def setWRegularizer(self, wRegularizer: Any) -> Layer:
        """Set the regularizer of the weights, or None to end it."""
        return self._regularize("w", wRegularizer)

    def setBRegularizer(self, bRegularizer: Any) -> Layer:
        """Set the regularizer of the bias, or None to end it."""
        return self._regularize("b", bRegularizer)

    def setURegularizer(self, uRegularizer: Any) -> Layer:
        """Set the regularizer of the weights of a hidden state, or None to end it."""
        return self._regularize("u", uRegularizer)

    def _regularize(self, role: str, regularizer: Any) -> Layer:
        rates = self._part("A regularizer").regularizers
        if regularizer is None:
            rates.pop(role, None)
        elif not hasattr(regularizer, "l1") or not hasattr(regularizer, "l2"):
            raise InvalidArgumentError(f"Expected L1Regularizer(l1), L2Regularizer(l2) or None, got {regularizer!r}")
        else:
            rates[role] = (float(regularizer.l1), float(regularizer.l2))
        return self

    def _part(self, asked: str) -> Part:
        if not isinstance(self.module, Part) or not self.module.specs:
            raise InvalidArgumentError(f"{asked} is for a layer with weights of its own, not for {self!r}")
        return self.module

    def freeze(self, names: Iterable[str] | str | None = None) -> Layer:
        """Keep the weights of this layer, or of the layers so named within it, as they are."""
        return self._learns(names, False)

    def unfreeze(self, names: Iterable[str] | str | None = None) -> Layer:
        """Let the weights of this layer, or of the layers so named within it, be learned again."""
        return self._learns(names, True)

    def _learns(self, names: Iterable[str] | str | None, learns: bool) -> Layer:
        layers = [self] if names is None else [self.layer(name) for name in _as_names(names)]
        for layer in layers:
            layer.module.requires_grad_(learns)
        return self

    def layer(self, name: str) -> Layer:
        """The layer of that name, here or below."""
        known = {layer.name(): layer for layer in self.flattened_layers(include_container=True)}
        if name not in known:
            raise InvalidArgumentError(weights.no_such_layer(self.name(), name, known))
        return known[name]

    # -- files and forms ----------------------------------------------------------------------------------------

    def save(self, path: str, over_write: bool = False) -> None:
        """Write the layer to a file, for `Model.load`: what it is made of and its weights, as plain data."""
        from bigdl.nn import saving

        saving.save(self, path, None, over_write)

    def saveModel(self, modelPath: str, weightPath: str | None = None, over_write: bool = False) -> None:
        """Write the layer to a file, or its form to one and its weights to another, for `Model.loadModel`."""
        from bigdl.nn import saving

        saving.save(self, modelPath, weightPath, over_write)

    def checkpoint_form(self) -> dict[str, Any]:
        """What checkpoints say of the layer, for `Model.load` to read them; nothing where that would take a pickle."""
        from bigdl.nn import saving

        pen = saving.Pen()
        form = saving.described(self, pen)
        return {} if pen.pickles else form

    def quantize(self) -> Layer:
        """A copy whose linear layers count in 8-bit integers; it predicts, and learns no more."""
        from bigdl.nn import quantization

        return quantization.quantized(self)

    def saved_form(self, pen: Any) -> dict[str, Any]:
        """What `from_saved` makes the layer from again: plain data, and tensors.

        A layer around something else than its arguments says so itself; `pen.pickled(object)` writes any object.
        """
        # What weights began with does not matter any more.
        return {"arguments": pen.encoded({k: v for k, v in self.arguments.items() if k not in INITIAL})}

    @classmethod
    def from_saved(cls, form: dict[str, Any], reader: Any) -> Layer:
        """Make a layer from what `saved_form` gave; its weights come afterwards."""
        return cls(**reader.decoded(form["arguments"]))


def _as_names(names: Iterable[str] | str) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _as_array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().numpy().copy()


def _equal(inputs: Any, others: Any) -> bool:
    mine, theirs = leaves(inputs), leaves(others)
    return len(mine) == len(theirs) and all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def _check_gradients(results: list[torch.Tensor], given: list[torch.Tensor]) -> None:
    expected, came = [tuple(each.shape) for each in results], [tuple(each.shape) for each in given]
    if expected != came:
        raise InvalidArgumentError(f"Expected the output's gradient in its shape, {expected}, got {came}")
