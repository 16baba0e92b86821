"""Cutting a text file into byte ranges at record ends, exactly, also where quoted fields hold newlines.

A nominal cut lies at any byte. Whether it lies inside quotes is the parity of the quote characters before it, which
all workers count together; the cut then moves to the first line end outside quotes. Parity is what pandas' tokenizer
does only while every opening quote stands at the start of a field, so that is proved along the way (`Survey`); a
file where it does not hold is not cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zoo.orca.data.pandas.source import Source

SCAN_BYTES = 1 << 16
UTF8_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Survey:
    """The quotes of one range: how many, and whether each opens a field if the range starts outside (or inside) one."""

    quotes: int
    sound_outside: bool
    sound_inside: bool


def nominal_cuts(size: int, block: int) -> list[int]:
    """Where to cut a file of that size: even pieces, none larger than a block.

    >>> nominal_cuts(10, 4)
    [0, 4, 8, 10]
    """
    count = max(1, -(-size // block))
    width = -(-size // count)
    return [min(index * width, size) for index in range(count)] + [size]


def survey(data: bytes, before: bytes, quote: bytes, separator: bytes) -> Survey:
    """Look at the quotes of a range; `before` is the byte in front of it, empty at the start of the file."""
    if not before and data.startswith(UTF8_MARK):
        data = data[len(UTF8_MARK) :]
    if not data.count(quote):
        return Survey(0, True, True)
    text = np.frombuffer(data, np.uint8)
    at = np.flatnonzero(text == quote[0])
    ahead = text[at - 1]
    if at[0] == 0:
        ahead[0] = (before or b"\n")[0]
    # A quote right behind the one that closed is the second half of a doubled one: it opens again.
    opens = np.isin(ahead, np.frombuffer(separator + b"\r\n" + quote, np.uint8))
    return Survey(len(at), bool(opens[0::2].all()), bool(opens[1::2].all()))


def quoted_cuts(surveys: Sequence[Survey]) -> list[bool] | None:
    """For every range, whether its start lies inside quotes; None where parity cannot be trusted."""
    inside = False
    starts = []
    for found in surveys:
        if not (found.sound_inside if inside else found.sound_outside):
            return None
        starts.append(inside)
        inside ^= bool(found.quotes % 2)
    return starts


def record_start(source: Source, position: int, inside: bool, quote: bytes | None) -> int:
    """The first byte at or behind position where a record starts; the size of the file if none does."""
    if position <= 0 or position >= source.size:
        return max(0, min(position, source.size))
    if not inside and source.read(position - 1, position) == b"\n":
        return position
    while position < source.size:
        chunk = source.read(position, min(position + SCAN_BYTES, source.size))
        end, inside = line_end(chunk, inside, quote)
        if end >= 0:
            return position + end + 1
        position += len(chunk)
    return source.size


def line_end(chunk: bytes, inside: bool, quote: bytes | None) -> tuple[int, bool]:
    """Where the first newline outside quotes is (-1: nowhere), and whether the chunk ends inside quotes.

    >>> line_end(b'a,"b' + chr(10).encode() + b'c"' + chr(10).encode(), False, b'"')
    (7, False)
    """
    if quote is None:
        return chunk.find(b"\n"), False
    at = 0
    while True:
        if inside:
            at = chunk.find(quote, at) + 1
            if not at:
                return -1, True
            inside = False
        newline = chunk.find(b"\n", at)
        opening = chunk.find(quote, at, newline if newline >= 0 else len(chunk))
        if opening < 0:
            return newline, False
        at, inside = opening + 1, True


def record_end(source: Source, quote: bytes | None) -> int:
    """Where the first record that is not blank ends, its newline included."""
    head, at = b"", 0
    while len(head) < source.size:
        head += source.read(len(head), min(len(head) + SCAN_BYTES, source.size))
        while (end := line_end(head[at:], False, quote)[0]) >= 0:
            at += end + 1
            if head[:at].strip(UTF8_MARK + b" \t\r\n"):
                return at
    return source.size
