"""Examples of docstrings as code: an `Example:` of ours is lines to type, with or without `>>>`."""

from __future__ import annotations

import re
import textwrap
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^(?P<indent> *)Example:\n(?P<body>(?:(?P=indent) +\S.*(?:\n|$)|\n)+)", re.MULTILINE)
SESSION = re.compile(r"^>>> .*(?:\n(?:>>> |\.\.\. ?|\S).*)*", re.MULTILINE)


class Examples(Extension):
    """Gives each example a fence before the docstring is read."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = with_fences(obj.docstring.value)


def with_fences(docstring: str) -> str:
    """A docstring whose examples are fenced code, also those that stand in the text with `>>>`."""
    text = EXAMPLE.sub(_fenced, docstring)
    return text if "```" in text else SESSION.sub(lambda found: f"```pycon\n{found[0]}\n```", text)


def _fenced(found: re.Match[str]) -> str:
    code = textwrap.dedent(found["body"]).strip("\n")
    language = "pycon" if code.startswith(">>>") else "python"
    fence = textwrap.indent(f"```{language}\n{code}\n```", found["indent"])
    return f"{found['indent']}**Example**\n\n{fence}\n\n"
