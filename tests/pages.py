"""The Python blocks of the README and the docs, and how they are run.

The Python blocks of a page run in order, in one namespace, in an empty folder, on the embedded engine. The word after
`python` says where a block runs: nothing (the page's namespace), `spark` or `ray` (by itself, with that engine
installed), `yarn` or `k8s` (no such cluster is at hand, so the block is compiled and its arguments are checked).
A `text` block right behind a Python block is what that block prints, to the letter.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Ray Data tells of every run, whoever asks, and wonders about CPUs that the tasks before it have not left yet.
RAY_DATA_TALK = re.compile(r"\tINFO \w+\.py:\d+ -- |The Ray cluster currently does not have any available CPUs")
END = "--- end of block ---"
END_OF_SCRIPT = "--- end of script ---"

# Run by a fresh interpreter: scripts, one after the other, each with a namespace of its own in the folder of its own.
# In the end Python would look through all of TensorFlow for garbage, again and again.
RUNNER = """
import gc, json, os, sys, traceback
blocks_end, script_end = sys.argv[2:]
for folder, blocks in json.loads(sys.argv[1]):
    os.chdir(folder)
    page = {"__name__": "__main__"}
    try:
        for name, line, code in blocks:
            exec(compile("\\n" * line + code, name, "exec"), page)
            print(blocks_end, flush=True)
    except BaseException:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        print(script_end, file=stream, flush=True)
gc.freeze()
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


@dataclass(frozen=True)
class Script:
    """Blocks that ran one after the other, and what that printed."""

    blocks: list[Block]
    stdout: str
    stderr: str

    def check(self) -> None:
        """All of them ran, printed what the page says, and complained about nothing."""
        outputs = self.stdout.split(f"{END}\n")
        assert len(outputs) == len(self.blocks) + 1, f"a block of {self.blocks[0].page} failed:\n{self.stderr}"
        for block, output in zip(self.blocks, outputs, strict=False):
            if block.prints is not None:
                assert _trimmed(output) == _trimmed(block.prints), f"{block} prints something else than the page says"
        complaints = [line for line in self.stderr.splitlines() if not RAY_DATA_TALK.search(line)]
        assert complaints == [], f"{self.blocks[0].page} complains:\n{self.stderr}"


def _trimmed(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def run(scripts: list[list[Block]], folder: Path) -> list[Script]:
    """Run scripts in one process, so that they share the time to import and to start a JVM, and nothing else."""
    plan = []
    for number, blocks in enumerate(scripts):
        own = folder / str(number)
        own.mkdir()
        plan.append((str(own), [(block.page, block.line, block.code) for block in blocks]))
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, json.dumps(plan), END, END_OF_SCRIPT],
        cwd=folder,
        env=os.environ | {"COLUMNS": "120"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    *outputs, _ = done.stdout.split(f"{END_OF_SCRIPT}\n")
    *complaints, after = done.stderr.split(f"{END_OF_SCRIPT}\n")
    assert (done.returncode, after) == (0, ""), done.stderr
    return [Script(*each) for each in zip(scripts, outputs, complaints, strict=True)]
