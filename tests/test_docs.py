"""Whatever the README and the docs show runs.

The Python blocks of a page run in order, in one namespace, in an empty folder, on the embedded engine. The word after
`python` says where a block runs: nothing (the page's namespace), `spark` or `ray` (a process of its own, with that
engine installed), `yarn` or `k8s` (no such cluster is at hand, so the block is compiled and its arguments are checked).
A `text` block right behind a Python block is what that block prints, to the letter.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import json
import os
import re
import runpy
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
OTHER_PAGES = [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
WHERE = ("", "spark", "ray", "yarn", "k8s")
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#([^)\s]+))?\)")
# Ray Data tells of every run, whoever asks, and wonders about CPUs that the tasks before it have not left yet.
RAY_DATA_TALK = re.compile(r"\tINFO \w+\.py:\d+ -- |The Ray cluster currently does not have any available CPUs")
END = "--- end of block ---"

# Run by a fresh interpreter: the blocks of its first argument, one after the other, as one script.
RUNNER = """
import json, sys
page = {"__name__": "__main__"}
for name, line, code in json.loads(sys.argv[1]):
    exec(compile("\\n" * line + code, name, "exec"), page)
    print(sys.argv[2], flush=True)
"""


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    where: str
    code: str
    prints: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(path: Path) -> list[Block]:
    text, found = path.read_text(), []
    fences = list(FENCE.finditer(text))
    for number, fence in enumerate(fences):
        kind, _, where = fence.group(1).strip().partition(" ")
        if kind != "python":
            continue
        following = fences[number + 1] if number + 1 < len(fences) else None
        shown = None
        if following and following.group(1) == "text" and not text[fence.end() : following.start()].strip():
            shown = following.group(2)
        line = text.count("\n", 0, fence.start()) + 1
        found.append(Block(str(path.relative_to(ROOT)), line, where, fence.group(2), shown))
    return found


ALL = [block for page in PAGES for block in blocks_of(page)]


def run(blocks: list[Block], folder: Path) -> None:
    """Run blocks as one script and compare what each prints with what the page says."""
    script = json.dumps([(block.page, block.line, block.code) for block in blocks])
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, script, END],
        cwd=folder,
        env=os.environ | {"COLUMNS": "120"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"a block of {blocks[0].page} failed:\n{done.stderr}"
    outputs = done.stdout.split(f"{END}\n")
    assert len(outputs) == len(blocks) + 1
    for block, output in zip(blocks, outputs, strict=False):
        if block.prints is not None:
            assert _trimmed(output) == _trimmed(block.prints), f"{block} prints something else than the page says"
    complaints = [line for line in done.stderr.splitlines() if not RAY_DATA_TALK.search(line)]
    assert complaints == []


def _trimmed(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


@pytest.mark.parametrize("page", sorted({block.page for block in ALL if not block.where}))
def test_page_runs_on_the_embedded_engine(page, tmp_path):
    run([block for block in ALL if block.page == page and not block.where], tmp_path)


@pytest.mark.parametrize("block", [block for block in ALL if block.where in ("spark", "ray")], ids=str)
def test_block_runs_on_spark_or_ray(block, tmp_path, pytestconfig):
    if block.where not in pytestconfig.getoption("--engines").split(","):
        pytest.skip(f"--engines leaves out {block.where}")
    run([block], tmp_path)


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
