"""Keys and values that the ranks of a gang share through the driver, so that libraries can bring their ranks together.

A rank asks over its authenticated connection and the driver answers, at once or when the keys are there: nothing
listens for it.
"""

from __future__ import annotations

from zoo.orca.engine.channel import Answer, Ask


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
        self._waiting: list[tuple[int, Ask]] = []

    def ask(self, rank: int, ask: Ask) -> list[tuple[int, Answer]]:
        """The answers that can be given now, to whom: to this question and to those that waited for its effect."""
        if ask.what == "get":
            self._waiting.append((rank, ask))
            return self._answers()
        value = getattr(self, f"_{ask.what}")(*ask.args)
        return [(rank, Answer(ask.number, value)), *self._answers()]

    def _answers(self) -> list[tuple[int, Answer]]:
        ready = [(rank, ask) for rank, ask in self._waiting if self._check(*ask.args)]
        self._waiting = [each for each in self._waiting if each not in ready]
        return [(rank, Answer(ask.number, [self._values[key] for key in ask.args[0]])) for rank, ask in ready]

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
