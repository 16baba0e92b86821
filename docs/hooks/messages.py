"""The messages of our errors, for the page of troubles: read from the source, by what somebody was doing.

`<!-- messages -->` in a page stands for them. What a message holds of the user's own (a name, a shape) is shown as …
"""

from __future__ import annotations

import ast
import html
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[2] / "src"
MARK = "<!-- messages -->"
OPEN = "…"

#: What somebody was doing, and where the source of it lies. Of several the longest path decides.
GROUPS = {
    "Starting: contexts, Spark, Ray and clusters": [
        "zoo/orca/context.py", "zoo/orca/options.py", "zoo/orca/engine/clusters.py", "zoo/orca/engine/session.py",
        "zoo/orca/engine/standalone.py", "zoo/orca/engine/spark", "zoo/orca/engine/ray", "zoo/ray", "zoo/common",
    ],
    "Importing: a package is missing": ["zoo/orca/optional.py", "zoo/orca/mxnet_library.py"],
    "Running on workers: lost, stalled, not enough of them, functions that cannot be sent": ["zoo/orca/engine"],
    "Reading and writing files": ["zoo/orca/data/pandas", "zoo/orca/data/file.py", "zoo/orca/data/pickles.py"],
    "Working with XShards": ["zoo/orca/data"],
    "Images": ["zoo/orca/data/image", "bigdl/transform", "zoo/feature/image"],
    "Giving data to fit, evaluate and predict": ["zoo/orca/feed"],
    "Any estimator: arguments, fit, evaluate, predict": ["zoo/orca/learn"],
    "Backends: how workers agree": ["zoo/orca/learn/sync"],
    "Checking before a fit": ["zoo/orca/learn/preflight.py", "zoo/orca/learn/surroundings.py"],
    "Checkpoints and resuming": ["zoo/orca/learn/checkpoint"],
    "Callbacks, triggers, metrics, optimizers, summaries": [
        "zoo/orca/learn/callbacks", "zoo/orca/learn/trigger.py", "zoo/orca/learn/metrics.py",
        "zoo/orca/learn/optimizers", "zoo/orca/learn/summary.py", "zoo/orca/learn/user_summaries.py",
        "bigdl/optim",
    ],
    "PyTorch": ["zoo/orca/learn/pytorch"],
    "Keras": ["zoo/orca/learn/tf2"],
    "TensorFlow graphs": ["zoo/orca/learn/tf"],
    "TFPark": ["zoo/tfpark", "zoo/util"],
    "MXNet": ["zoo/orca/learn/mxnet"],
    "OpenVINO": ["zoo/orca/learn/openvino"],
    "Exporting a model": ["zoo/orca/learn/export"],
    "BigDL layers, criterions and estimators": ["bigdl", "zoo/orca/learn/bigdl"],
    "NNFrames and Spark ML": ["zoo/pipeline/nnframes", "zoo/orca/learn/stage"],
    "The command line": ["zoo/orca/command"],
    "The older front doors: zoo.pipeline, zoo.feature": ["zoo/pipeline", "zoo/feature", "zoo/models"],
}  # fmt: skip


@dataclass(frozen=True)
class Message:
    error: str
    text: str
    path: str


@dataclass(frozen=True)
class Kind:
    """An error class: the built-ins that it also is, and the first sentence of its docstring."""

    builtins: tuple[str, ...]
    says: str
    text: str | None


def on_page_markdown(markdown: str, **_: Any) -> str:
    return markdown.replace(MARK, page()) if MARK in markdown else markdown


def page() -> str:
    """The messages of each group, folded by the kind of error."""
    grouped: dict[str, dict[str, list[str]]] = {title: defaultdict(list) for title in GROUPS}
    for message in messages():
        found = grouped[group_of(message.path)][message.error]
        if message.text not in found:
            found.append(message.text)
    sections = [f"### {title}\n\n{_section(found)}" for title, found in grouped.items() if found]
    return "\n\n".join(sections)


def _section(found: dict[str, list[str]]) -> str:
    known = kinds()
    ordered = sorted(found.items(), key=lambda item: list(known).index(item[0]))
    return "\n\n".join(_folded(name, known[name], texts) for name, texts in ordered)


def _folded(name: str, kind: Kind, texts: list[str]) -> str:
    rows = "".join(f"<li>{html.escape(text, quote=False)}</li>\n" for text in texts)
    also = ", ".join(kind.builtins)
    head = f"<summary><code>{name}</code> ({also}): {len(texts)} message{'s' * (len(texts) > 1)}</summary>"
    return (
        f'<details class="messages">{head}\n<p>{html.escape(kind.says, quote=False)}</p>\n<ul>\n{rows}</ul></details>'
    )


def group_of(path: str) -> str:
    """The group of a file of the source, by the longest path that its own starts with."""
    matches = [(len(start), title) for title, starts in GROUPS.items() for start in starts if path.startswith(start)]
    if not matches:
        raise LookupError(f"{path} is in no group of errors: say in GROUPS of docs/hooks/messages.py what it is for")
    return max(matches)[1]


def kinds() -> dict[str, Kind]:
    """The classes of zoo/orca/errors.py, in their order."""
    found: dict[str, Kind] = {}
    for node in ast.parse((SOURCE / "zoo/orca/errors.py").read_text()).body:
        if isinstance(node, ast.ClassDef):
            bases = [ast.unparse(base) for base in node.bases]
            builtins = [name for base in bases for name in (found[base].builtins if base in found else (base,))]
            plain = [name for name in dict.fromkeys(builtins) if name != "Exception"] or ["Exception"]
            says = (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ")
            found[node.name] = Kind(tuple(plain), says, _own_text(node))
    return found


def _own_text(node: ast.ClassDef) -> str | None:
    """The message that a class writes itself, whatever it is given."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "super().__init__" and call.args:
            return next((text for text in Texts(node).of(call.args[0]) if _says_something(text)), None)
    return None


def messages() -> Iterator[Message]:
    """Every message of the source: wherever an error is made, raised at once or not."""
    known = kinds()
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name == "errors.py":
            continue
        tree = ast.parse(path.read_text())
        texts = Texts(tree)
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            name = ast.unparse(call.func).rpartition(".")[2]
            if name in known and call.args:
                own = known[name].text
                for text in [own] if own else filter(_says_something, texts.of(call.args[0])):
                    yield Message(name, text, path.relative_to(SOURCE).as_posix())


def _says_something(text: str) -> bool:
    return len(re.findall(r"[a-z]{2,}", text)) > 2


class Texts:
    """What strings an expression of a module may be."""

    def __init__(self, tree: ast.AST):
        self._functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        self._homes = {
            id(inner): function
            for function in self._functions.values()
            for inner in ast.walk(function)
            if isinstance(inner, ast.Name)
        }

    def of(self, node: ast.expr, depth: int = 3) -> list[str]:
        """The strings, with `…` for what only a run can know."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return [node.value]
        if isinstance(node, ast.JoinedStr):
            return ["".join(str(part.value) if isinstance(part, ast.Constant) else OPEN for part in node.values)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return [a + b for a, b in itertools.product(self.of(node.left, depth), self.of(node.right, depth))]
        if isinstance(node, ast.IfExp):
            return [*self.of(node.body, depth), *self.of(node.orelse, depth)]
        if depth and isinstance(node, ast.Call):
            return self._returned(ast.unparse(node.func).rpartition(".")[2], depth - 1)
        if depth and isinstance(node, ast.Name):
            return self._assigned(node, depth - 1)
        return [OPEN]

    def _returned(self, name: str, depth: int) -> list[str]:
        function = self._functions.get(name)
        returns = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)] if function else []
        return [text for value in returns if value is not None for text in self.of(value, depth)] or [OPEN]

    def _assigned(self, name: ast.Name, depth: int) -> list[str]:
        home = self._homes.get(id(name))
        values = [
            node.value
            for node in (ast.walk(home) if home else ())
            if isinstance(node, ast.Assign) and any(ast.unparse(target) == name.id for target in node.targets)
        ]
        return [text for value in values for text in self.of(value, depth)] or [OPEN]
