"""Whatever the README and the docs show runs, leads somewhere and is true; `pages.py` says how blocks are marked."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import runpy

import pytest

import pages
from pages import ALL, FENCE, PAGES, ROOT

OTHER_PAGES = [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
WHERE = ("", "spark", "ray", "yarn", "k8s")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#([^)\s]+))?\)")


@pytest.mark.parametrize("page", sorted({block.page for block in ALL if not block.where}))
def test_page_runs_on_the_embedded_engine(page, tmp_path):
    (script,) = pages.run([[block for block in ALL if block.page == page and not block.where]], tmp_path)
    script.check()


@pytest.mark.parametrize("block", [block for block in ALL if block.where in ("yarn", "k8s")], ids=str)
def test_block_for_a_cluster_that_is_not_at_hand_has_known_arguments(block):
    """No such cluster is at hand: the mode must be known, and so must every argument."""
    from zoo.orca import init_orca_context
    from zoo.orca.context import MODES, RAY_OPTIONS
    from zoo.orca.engine.clusters import init_spark_on_k8s, init_spark_on_yarn

    starter = {"yarn": init_spark_on_yarn, "k8s": init_spark_on_k8s}[block.where]
    known = inspect.signature(starter).parameters.keys() | inspect.signature(init_orca_context).parameters.keys()
    calls = [node for node in ast.walk(ast.parse(block.code)) if isinstance(node, ast.Call)]
    starts = [call for call in calls if ast.unparse(call.func) == "init_orca_context"]
    assert starts, f"{block} starts nothing"
    for call in starts:
        mode = ast.literal_eval(call.args[0])
        assert MODES[mode] == block.where
        assert {keyword.arg for keyword in call.keywords} <= known | set(RAY_OPTIONS)


def test_every_block_says_where_it_runs():
    unknown = [f"{block}: {block.where!r}" for block in ALL if block.where not in WHERE]
    assert not unknown, f"a Python block may be marked {WHERE[1:]} or not at all"


def test_the_readme_shows_code_and_what_it_prints():
    assert any(block.page == "README.md" and block.prints for block in ALL)


@pytest.mark.parametrize("page", [*PAGES, *OTHER_PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = FENCE.sub("", page.read_text())
    for target, anchor in LINK.findall(text):
        if "://" in target:
            continue
        path = (page.parent / target).resolve()
        assert path.exists(), f"{page.name} links to {target}, which is not there"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
            anchors = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
            assert anchor in anchors, f"{page.name} links to {target}#{anchor}, which is not there"


@pytest.mark.parametrize("page", [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_files_named_in_the_map_exist(page):
    """A map that names a file that is gone is worse than none."""
    there = [
        f"/{path.relative_to(ROOT)}"
        for folder in ("src", "tests", "examples")
        for path in ROOT.glob(f"{folder}/**/*.py")
    ]
    for name in re.findall(r"`([\w./-]+\.py)`", page.read_text()):
        assert any(path.endswith(f"/{name}") for path in there), f"{page.name} names {name}, which is not there"


def test_the_map_names_every_file_of_every_folder():
    """A name that several folders have stands for the first of them; the others' carry their folder."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    seen = set()
    for top in ("engine", "data", "feed", "learn"):
        for path in sorted((ROOT / "src/zoo/orca" / top).rglob("*.py"), key=lambda path: len(path.parts)):
            if path.name == "__init__.py":
                continue
            whole = f"`{path.parent.name}/{path.name}`"
            named = whole in text or (path.name not in seen and f"`{path.name}`" in text)
            assert named, f"ARCHITECTURE.md does not say what {whole} is"
            seen.add(path.name)


@pytest.mark.parametrize("page", [page for page in PAGES if "<!-- support:" in page.read_text()], ids=lambda p: p.name)
def test_support_tables_are_what_the_code_says(page):
    filled = runpy.run_path(str(ROOT / "docs/support_table.py"))["filled"]
    assert page.read_text() == filled(page.read_text()), "type: .venv/bin/python docs/support_table.py"


def test_the_page_of_errors_names_every_error_and_its_builtin():
    from zoo.orca import errors

    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", (ROOT / "docs/errors.md").read_text(), re.MULTILINE))
    ours = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    assert rows.keys() == ours.keys()
    for name, words in rows.items():
        named = re.findall(r"`(\w+)`", words)
        assert named
        assert all(issubclass(ours[name], getattr(builtins, each)) for each in named), name
