"""What `est.check` found, to be read by a person or asked by a program."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "error"]

MARKS: dict[Level, str] = {"ok": "✓", "warning": "!", "error": "✗"}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: what was looked at: "workers", "pickling", "data", ...
        level: "ok", "warning" (fit starts, but look at it) or "error" (fit would stop).
        text: what was found, and what to type next.
        error: what fit would raise; with a warning, what was raised here and may not be there.
    """

    name: str
    level: Level
    text: str
    error: BaseException | None = None

    @staticmethod
    def of(name: str, error: BaseException, text: str | None = None) -> Finding:
        """An error as a finding."""
        return Finding(name, "error", text or words_of(error), error)

    def __str__(self) -> str:
        return f"{MARKS[self.level]} {self.name}: {self.text}"


class CheckReport:
    """All findings of a check, in the order in which they were made.

    Example:
        >>> report = CheckReport([Finding("workers", "ok", "2 workers can start together")])
        >>> report.ok
        True
        >>> print(report)
        ✓ workers  2 workers can start together
        Nothing stands in the way of fit.
    """

    def __init__(self, findings: Iterable[Finding]):
        self.findings = tuple(findings)

    @property
    def ok(self) -> bool:
        """Whether fit would start; there may be warnings."""
        return not self.errors

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == "error"]

    @property
    def warnings(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == "warning"]

    def raise_first(self) -> None:
        """Raise what fit would raise first, if anything."""
        for finding in self.errors:
            if finding.error is not None:
                raise finding.error

    def __str__(self) -> str:
        width = max((len(finding.name) for finding in self.findings), default=0)
        lines = [f"{MARKS[each.level]} {each.name:<{width}}  {_one_line(each.text)}" for each in self.findings]
        return "\n".join([*lines, self._verdict()])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{MARKS[each.level]}</td><td>{html.escape(each.name)}</td>"
            f'<td style="text-align: left">{html.escape(each.text)}</td></tr>'
            for each in self.findings
        )
        return f"<table>{rows}</table><p>{html.escape(self._verdict())}</p>"

    def _verdict(self) -> str:
        if self.ok:
            return "Nothing stands in the way of fit."
        raised = ", ".join(dict.fromkeys(type(each.error).__name__ for each in self.errors if each.error is not None))
        return f"fit would stop: {raised}."


def words_of(error: BaseException) -> str:
    """What an error says; errors that are not ours do not say who they are."""
    text = _one_line(str(error))
    return text if type(error).__module__.startswith("zoo.") else f"{type(error).__name__}: {text}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
