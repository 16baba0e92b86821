"""The docs site: it builds without a warning, holds every page, and loads nothing from outside."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
# What makes a browser fetch something; a plain link (`a`) does so only when somebody follows it.
FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
# Modules whose `__all__` is what users import, and so must stand in the reference.
PUBLIC = ["zoo.orca", "zoo.orca.data", "zoo.orca.data.pandas", "zoo.orca.data.image", "zoo.orca.learn.pytorch",
          "zoo.orca.learn.tf2", "zoo.orca.learn.bigdl", "zoo.orca.learn.mxnet", "zoo.orca.learn.openvino",
          "zoo.pipeline.nnframes", "zoo.pipeline.estimator", "zoo.pipeline.inference", "zoo.tfpark",
          "zoo.ray"]  # fmt: skip


class Page(HTMLParser):
    """What a page fetches, what it links to, and the anchors it has."""

    def __init__(self, path: Path):
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.anchors.add(values["id"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if FETCHED.get(tag, "") in values and values.get("rel") not in ("canonical", "next", "prev"):
            self.fetched.append(values[FETCHED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return folder


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def nav_entries() -> list[str]:
    class Loader(yaml.SafeLoader):
        """Takes the one tag of Python that mkdocs.yml has for what it is not: nothing."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)

    def flat(node):
        if isinstance(node, str):
            return [node]
        parts = node if isinstance(node, list) else node.values()
        return [name for part in parts for name in flat(part)]

    return flat(yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"])


def test_the_nav_leads_to_every_page_and_to_no_other(site):
    entries = nav_entries()
    assert sorted(set(entries)) == sorted(entries)
    missing = [name for name in entries if not (site / name).with_suffix(".html").exists()]
    assert missing == []
    assert {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} <= set(entries)


def test_nothing_is_loaded_from_outside(site, pages):
    outside = [(path.name, url) for path, page in pages.items() for url in page.fetched if re.match(r"(\w+:)?//", url)]
    assert outside == []
    sheets = [
        path for path in site.rglob("*.css") if re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", path.read_text())
    ]
    assert sheets == []


def test_links_within_the_site_lead_somewhere(site, pages):
    broken = []
    for path, page in pages.items():
        for link in [*page.links, *page.fetched]:
            target, _, anchor = link.partition("#")
            if re.match(r"\w+:", link) or path.name == "404.html":
                continue
            there = Path(os.path.normpath(path.parent / unquote(target))) if target else path
            known = pages.get(there)
            if not there.exists() or (anchor and known and unquote(anchor) not in known.anchors):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_examples_are_pages_with_their_code(site):
    listed = (site / "source/examples.html").read_text()
    for path in (ROOT / "examples").glob("*.py"):
        assert f"{path.name}.html" in listed
    assert "Estimator.from_torch" in re.sub(
        "<[^>]+>", "", (site / "source/examples/digits_on_arrays.py.html").read_text()
    )


def test_a_block_for_an_engine_says_so_and_is_python(site):
    page = (site / "engines.html").read_text()
    assert '<span class="filename">on Spark</span>' in page
    assert "python spark" not in page
    assert "```" not in page


def test_the_reference_has_every_public_name(pages):
    anchors = {anchor for path, page in pages.items() if path.parent.name == "reference" for anchor in page.anchors}
    for module in PUBLIC:
        tree = ast.parse((ROOT / "src" / module.replace(".", "/") / "__init__.py").read_text())
        lists = [
            node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        ]
        names = [each.value for node in lists for each in node.elts if isinstance(each, ast.Constant)]
        assert names
        assert {f"{module}.{name}" for name in names} <= anchors


def test_the_reference_has_every_layer_and_criterion(site):
    from bigdl.nn import criterion, layer
    from bigdl.util import common

    text = re.sub("<[^>]+>", "", (site / "reference/bigdl-nn.html").read_text())
    ours = {*layer.__all__, *criterion.__all__} - set(common.__all__)
    assert [name for name in sorted(ours) if not re.search(rf"\b{name}\b", text)] == []


def test_the_page_of_troubles_has_every_error_and_the_message_somebody_saw(site):
    from zoo.orca import errors
    from zoo.orca.learn.optimizers import Adam

    text = re.sub("<[^>]+>", "", (site / "troubleshooting.html").read_text())
    with pytest.raises(ValueError, match="Expected learningrate to be a number from 0 on, got -1"):
        Adam(learningrate=-1)
    assert "Expected … to be a number from 0 on, got …" in text
    assert [
        name for name in vars(errors) if name.endswith("Error") and name not in ("OrcaError", *re.findall(r"\w+", text))
    ] == []
