"""Keys and values that the ranks of a gang share through the driver, so that libraries can bring their ranks together.

A rank asks over its authenticated connection and the driver answers, at once or when the keys are there: nothing
listens for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from zoo.orca.engine.channel import Answer, Ask


@dataclass
class _Waiter:
    """Who asked for keys, and how many of them were there when it was last looked."""

    rank: int
    ask: Ask
    place: int = 0


class Board:
    """The driver's side: it does what ranks ask for, and keeps those waiting that want what is not there yet.

    Example:
        >>> board = Board()
        >>> board.ask(1, Ask(7, "get", (["a"],)))
        []
        >>> board.ask(0, Ask(3, "put", ("a", b"1")))
        [(0, Answer(number=3, value=None)), (1, Answer(number=7, value=[b'1']))]
    """

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        # By the key that is missed, so that a new key costs nobody's time but theirs who wait for it.
        self._waiting: dict[str, list[_Waiter]] = {}

    def ask(self, rank: int, ask: Ask) -> list[tuple[int, Answer]]:
        """The answers that can be given now, to whom: to this question and to those that waited for its effect."""
        if ask.what == "get":
            return self._answers([_Waiter(rank, ask)])
        value = getattr(self, f"_{ask.what}")(*ask.args)
        return [(rank, Answer(ask.number, value)), *self._answers(self._waiters_for(ask))]

    def _waiters_for(self, ask: Ask) -> list[_Waiter]:
        """Those who waited for the key that the question was about, and is there now."""
        key = ask.args[0] if ask.args else None
        return self._waiting.pop(key, []) if isinstance(key, str) and key in self._values else []

    def _answers(self, waiters: list[_Waiter]) -> list[tuple[int, Answer]]:
        """Answers to those whose keys are all there; the others wait for the first that is not."""
        answers = []
        for waiter in waiters:
            missing = self._missing(waiter)
            if missing is None:
                values = [self._values[key] for key in waiter.ask.args[0]]
                answers.append((waiter.rank, Answer(waiter.ask.number, values)))
            else:
                self._waiting.setdefault(missing, []).append(waiter)
        return answers

    def _missing(self, waiter: _Waiter) -> str | None:
        """The first key that is not there: keys come one after the other, so those before are not looked at again."""
        keys = waiter.ask.args[0]
        while waiter.place < len(keys) and keys[waiter.place] in self._values:
            waiter.place += 1
        if waiter.place < len(keys):
            return keys[waiter.place]
        return next((key for key in keys if key not in self._values), None)  # one may have been removed meanwhile

    def _put(self, key: str, value: bytes) -> None:
        self._values[key] = value

    def _add(self, key: str, amount: int) -> int:
        total = int(self._values.get(key, b"0")) + amount
        self._values[key] = str(total).encode()
        return total

    def _append(self, key: str, value: bytes) -> None:
        self._values[key] = self._values.get(key, b"") + value

    def _swap(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """Put `desired` where `expected` is, or where nothing is and nothing was expected; give what is there then."""
        if self._values.get(key, b"") == expected:
            self._values[key] = desired
        return self._values.get(key, expected)

    def _check(self, keys: list[str]) -> bool:
        return all(key in self._values for key in keys)

    def _remove(self, key: str) -> bool:
        return self._values.pop(key, None) is not None

    def _count(self) -> int:
        return len(self._values)
