"""Files of the repository that lie outside docs/, as pages of the site, and the links that lead to them.

A link to `../examples/gang.py`, `../examples` or `../ARCHITECTURE.md` works where the repository is shown as it is. The
site gives each such file or folder a page of its own, and this hook leads the link there.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: What the nav of mkdocs.yml leads to; other files get a page when a link does.
IN_NAV = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples", "benchmarks")
SHOWN = (".py", ".ipynb", ".sh")
LANGUAGES = {".py": "python", ".sh": "bash", ".toml": "toml", ".json": "json"}
FENCE = re.compile(r"(^(?P<ticks>`{3,})[^\n]*\n.*?^(?P=ticks)$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<=\]\()([^)#\s:]+)(?=[)#])")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file or folder outside docs/ that the nav or a link leads to."""
    texts = {DOCS / file.src_uri: file.content_string for file in files.documentation_pages()}
    wanted = [ROOT / name for name in IN_NAV]
    wanted += [target for page, text in texts.items() for target in _targets(page, text)]
    while wanted:
        path = wanted.pop()
        if path in texts or DOCS in path.parents or path in (ROOT, DOCS) or not path.exists():
            continue
        texts[path] = _text_of(path)
        inclusion = InclusionLevel.INCLUDED if path.name in IN_NAV else InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, _uri(path), content=texts[path], inclusion=inclusion))
        wanted += _targets(_base(path), texts[path])
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lead the links of a page to where the site has their targets."""
    base = _base(_origin(page.file.src_uri))

    def lead(found: re.Match[str]) -> str:
        target = _resolved(base, found[1])
        return os.path.relpath(_uri(target), os.path.dirname(page.file.src_uri)) if target.exists() else found[1]

    pieces = FENCE.split(markdown)[:: FENCE.groups + 1]
    fences = [found[0] for found in FENCE.finditer(markdown)]
    led = [LINK.sub(lead, piece) for piece in pieces]
    return "".join(text for pair in zip(led, [*fences, ""], strict=True) for text in pair)


def _uri(path: Path) -> str:
    """Where the site has a file or a folder of the repository."""
    if path in (ROOT, DOCS):
        return "index.md"
    if DOCS in path.parents:
        return path.relative_to(DOCS).as_posix()
    name = path.relative_to(ROOT).as_posix()
    return f"project/{name.lower()}" if path.suffix == ".md" else f"source/{name}.md"


def _origin(uri: str) -> Path:
    """The file or folder of the repository that a page shows."""
    if uri.startswith("project/"):
        return next(ROOT / name for name in IN_NAV if _uri(ROOT / name) == uri)
    if uri.startswith("source/"):
        return ROOT / uri.removeprefix("source/").removesuffix(".md")
    return DOCS / uri


def _base(path: Path) -> Path:
    """The file whose folder the links of a page start from."""
    return path / "README.md" if path.is_dir() else path


def _resolved(base: Path, link: str) -> Path:
    path = Path(os.path.normpath(base.parent / link))
    return path.parent if path.name == "README.md" and path.parent != ROOT else path


def _targets(base: Path, text: str) -> Iterator[Path]:
    for found in LINK.finditer(FENCE.sub("", text)):
        yield _resolved(base, found[1])


def _text_of(path: Path) -> str:
    """What the page of a file or folder shows."""
    if path.is_dir():
        readme = path / "README.md"
        return readme.read_text() if readme.exists() else _listing(path)
    text = path.read_text()
    if path.suffix == ".md":
        return text
    if path.suffix == ".ipynb":
        return _notebook(json.loads(text))
    return f"# {path.name}\n\n`{path.relative_to(ROOT)}`\n\n````{LANGUAGES.get(path.suffix, 'text')}\n{text}\n````\n"


def _listing(folder: Path) -> str:
    """The files of a folder, each with the first line of its docstring."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in SHOWN and not path.name.startswith("_"))
    lines = [f"- [{path.relative_to(folder)}]({path.relative_to(folder)}){_summary(path)}" for path in files]
    return "\n".join([f"# {folder.name.capitalize()}", "", *lines, ""])


def _summary(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text())) if path.suffix == ".py" else None
    return f": {docstring.splitlines()[0]}" if docstring else ""


def _notebook(notebook: dict[str, Any]) -> str:
    """The cells of a notebook; ours are kept without what they show."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    return "\n\n".join(source if kind == "markdown" else f"````python\n{source}\n````" for kind, source in cells)
