"""Which parts of a DataLoader's batch are features and which are labels, as users write it: "_data[0]"."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from typing import Any

from zoo.orca.errors import InvalidArgumentError

FEATURES, LABELS = "_data[0]", "_data[1]"

#: (kind, key) steps from a batch to a part of it; kind is "item" or "attribute".
Path = tuple[tuple[str, Any], ...]


def parse(expression: str, what: str) -> list[Path]:
    """The parts of a batch that an expression names; it may name one, or several between commas.

    >>> parse("_data[0], _data['mask']", "features")
    [(('item', 0),), (('item', 'mask'),)]
    """
    try:
        body = ast.parse(expression.strip(), mode="eval").body
        parts = list(body.elts) if isinstance(body, ast.Tuple | ast.List) else [body]
        return [_path(part) for part in parts]
    except (SyntaxError, ValueError, AttributeError) as error:
        raise InvalidArgumentError(
            f'{what} must name parts of a batch, such as "_data[0]" or "_data[0], _data[1]", but is {expression!r}.'
        ) from error


def _path(node: ast.expr) -> Path:
    if isinstance(node, ast.Name) and node.id == "_data":
        return ()
    if isinstance(node, ast.Subscript):
        return (*_path(node.value), ("item", ast.literal_eval(node.slice)))
    if isinstance(node, ast.Attribute):
        return (*_path(node.value), ("attribute", node.attr))
    raise ValueError(ast.unparse(node))


class Chosen:
    """A loader's collate_fn, and after it the parts of a batch that are features and labels."""

    def __init__(self, collate: Callable[[Any], Any], features: list[Path], labels: list[Path]):
        self.collate = collate
        self.features = features
        self.labels = labels

    def __call__(self, rows: Any) -> tuple[Any, Any]:
        batch = self.collate(rows)
        return _take(batch, self.features), _take(batch, self.labels)


class LoaderCreator:
    """A function without arguments, as estimators call it."""

    def __init__(self, function: Callable[[], Any], features: str, labels: str):
        self.function = function
        self.features = features
        self.labels = labels

    def __call__(self, config: dict[str, Any], batch_size: int) -> Any:
        return chosen_loader(self.function(), self.features, self.labels)


def chosen_loader(loader: Any, features: str, labels: str) -> Any:
    """A loader whose batches are (features, labels) as the expressions say."""
    if not hasattr(loader, "collate_fn"):
        raise InvalidArgumentError(
            "The function given to FeatureSet.pytorch_dataloader must return a torch.utils.data.DataLoader, but "
            f"returned a {type(loader).__name__}."
        )
    changed = copy.copy(loader)
    changed.collate_fn = Chosen(loader.collate_fn, parse(features, "features"), parse(labels, "labels"))
    return changed


def _take(batch: Any, paths: list[Path]) -> Any:
    parts = []
    for path in paths:
        part = batch
        try:
            for kind, key in path:
                part = part[key] if kind == "item" else getattr(part, key)
        except (LookupError, TypeError, AttributeError) as error:
            raise InvalidArgumentError(
                f"A batch of the loader, a {type(batch).__name__}, has no part {_shown(path)}. Say in features= and "
                'labels= which parts of a batch are which, such as "_data[0]".'
            ) from error
        parts.append(part)
    return parts[0] if len(parts) == 1 else parts


def _shown(path: Path) -> str:
    return "_data" + "".join(f"[{key!r}]" if kind == "item" else f".{key}" for kind, key in path)
