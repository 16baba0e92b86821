"""Code blocks: where one runs becomes its title, and what it prints is shown as belonging to it.

The tests read the word after `python` (tests/test_docs.py). Markdown for the site knows no such word.
"""

from __future__ import annotations

import re
from typing import Any

TITLES = {"spark": "on Spark", "ray": "on Ray", "yarn": "on YARN", "k8s": "on Kubernetes"}
PLACED = re.compile(rf"^```python ({'|'.join(TITLES)})$", re.MULTILINE)
PRINTED = re.compile(r"(^```python[^\n]*\n(?:(?!```).*\n)*```\n\n)```text$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    printed = PRINTED.sub(r"\1``` { .text .output }", markdown)
    return PLACED.sub(lambda found: f'```python title="{TITLES[found[1]]}"', printed)
