"""Layers and criterions of `bigdl.nn` that are rows of a catalogue, for the reference: no class is written out there.

The catalogue is read, not imported. `<!-- layers -->` and `<!-- criterions -->` in a page stand for its tables.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NN = Path(__file__).parents[2] / "src/bigdl/nn"


def on_page_markdown(markdown: str, **_: Any) -> str:
    for mark, made in (("<!-- layers -->", layers), ("<!-- criterions -->", criterions)):
        if mark in markdown:
            markdown = markdown.replace(mark, made())
    return markdown


def layers() -> str:
    """A table for each family of layers: how it is called, and what it does."""
    tree = ast.parse((NN / "catalogue.py").read_text())
    families = next(node.value for node in tree.body if isinstance(node, ast.AnnAssign) and _is(node, "FAMILIES"))
    assert isinstance(families, ast.Dict)
    parts = []
    for name, rows in zip(families.keys, families.values, strict=True):
        assert isinstance(name, ast.Constant)
        assert isinstance(rows, ast.List)
        table = [(_text(row.args[0]), _text(row.args[2])) for row in rows.elts if isinstance(row, ast.Call)]
        parts.append(f"### {name.value}\n\n{_table(table)}")
    return "\n\n".join(parts)


def criterions() -> str:
    """The criterions that are declared in one line."""
    return _table(sorted(_declared(ast.parse((NN / "criterion.py").read_text()))))


def _declared(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "declare":
            arguments = [
                keyword.arg
                if ast.unparse(keyword.value) == "REQUIRED"
                else f"{keyword.arg}={ast.unparse(keyword.value)}"
                for keyword in node.keywords
                if keyword.arg not in ("reduction", "counts", "needs_labels")
            ]
            yield f"{_text(node.args[0])}({', '.join(map(str, arguments))})", _text(node.args[1])


def _is(node: ast.AnnAssign, name: str) -> bool:
    return isinstance(node.target, ast.Name) and node.target.id == name


def _text(node: ast.expr) -> str:
    return str(ast.literal_eval(node))


def _table(rows: list[tuple[str, str]]) -> str:
    cells = [f"| `{call}` | {words.replace('|', chr(92) + '|').replace('*', chr(92) + '*')} |" for call, words in rows]
    return "\n".join(["| call | what it does |", "| --- | --- |", *cells])
