"""Draw the pictures of the README: python docs/pictures/draw.py

learning-curve.svg is what the README's ten lines draw, run here as they stand. architecture.svg is drawn from the
boxes below; every text stands on a colour of its own, so that it can be read on light and on dark pages.
"""

from __future__ import annotations

import os
import re
import tempfile
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
README = HERE.parents[1] / "README.md"
INK, GREY = "#ffffff", "#7d8590"
COLOURS = {"driver": "#3b4a6b", "worker": "#56657f", "step": "#1f6f8b", "data": "#6b5b95", "engine": "#2e6b4f"}

# What is in the picture: x, y, width, height, colour, title, and lines below it.
BOXES: list[tuple[int, int, int, int, str, str, list[str]]] = [
    (
        20,
        16,
        860,
        84,
        "driver",
        "Estimator: what you call",
        ["est.fit(data)   est.evaluate   est.predict   est.export"],
    ),
    (20, 136, 424, 176, "worker", "worker, rank 0", []),
    (456, 136, 424, 176, "worker", "worker, rank 1 ... N-1", []),
    *(
        (left + 12 + 136 * number, 176, 128, 124, "step", title, lines)
        for left in (20, 456)
        for number, (title, lines) in enumerate(
            [
                ("Feed", ["its rows of", "every global", "batch"]),
                ("Learner", ["one step of", "torch, Keras,", "MXNet, ..."]),
                ("Sync", ["gradients of", "all ranks", "become one"]),
            ]
        )
    ),
    (20, 348, 860, 44, "data", "XShards: the data, in pieces, where functions can run over them", []),
    (
        20,
        420,
        860,
        84,
        "engine",
        "Engine: where code runs",
        ["local processes   or   Spark executors   or   Ray nodes"],
    ),
]
ARROWS = [(232, 104, 232, 130), (668, 104, 668, 130), (232, 344, 232, 318), (668, 344, 668, 318)]


def main() -> None:
    (HERE / "architecture.svg").write_text(architecture())
    draw_curve(HERE / "learning-curve.svg")


def architecture() -> str:
    """The six nouns, each in the place where it works."""
    parts = [_box(*box) for box in BOXES] + [_arrow(*arrow) for arrow in ARROWS]
    title = "One fit: the Estimator on the driver; Feed, Learner and Sync on each worker; XShards and Engine below."
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 504" role="img" '
            'font-family="system-ui, -apple-system, Segoe UI, Roboto, sans-serif">',
            f"<title>{title}</title>",
            f'<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" orient="auto">'
            f'<path d="M0 0L8 4L0 8z" fill="{GREY}"/></marker></defs>',
            *parts,
            "</svg>",
            "",
        ]
    )


def draw_curve(path: Path) -> None:
    """Run the README's first block in an empty folder and keep the curve that it saves."""
    code = re.search(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    if code is None:
        raise ValueError(f"{README} has no Python block to draw from.")
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            _with_small_svg(code[1])
            drawn = Path("curve.svg").read_text()
        finally:
            os.chdir(before)
    path.write_text("\n".join(line.rstrip() for line in drawn.splitlines()) + "\n")


def _with_small_svg(code: str) -> None:
    """Text as text, and no date, so that the file is small and stays as it is where nothing changed."""
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "orca", "savefig.dpi": 60}):
        exec(compile(code, str(README), "exec"), {"__name__": "__main__"})


def _box(x: int, y: int, width: int, height: int, colour: str, title: str, lines: list[str]) -> str:
    small = colour == "step"
    texts = [_text(x + 14, y + 27, title, 17 if small else 19, bold=True)]
    texts += [_text(x + 14, y + (53 if small else 60) + 22 * number, line, 16) for number, line in enumerate(lines)]
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="10" fill="{COLOURS[colour]}"/>' + "".join(
        texts
    )


def _text(x: int, y: int, text: str, size: int, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{INK}" xml:space="preserve"{weight}>{escape(text)}</text>'


def _arrow(x1: int, y1: int, x2: int, y2: int) -> str:
    return f'<path d="M{x1} {y1}L{x2} {y2}" stroke="{GREY}" stroke-width="2.5" marker-end="url(#tip)"/>'


if __name__ == "__main__":
    main()
