"""Facts: how what happened is written into a row of `event`, and read again.

A fact is a short JSON array: the move, then the attempt, the bot and the reason, as far as there are any. A move is
three letters, for its source, its signal and its target: `wCr` is a task that waited, was claimed and is running. There
are four facts or more in every task's life, and spelled in full they were a third of all that a life writes.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

_Name = str | None

#: What a repair gives as the state a graph was said to be in, where nobody can read what was said.
UNREADABLE: Final = "unreadable"
#: A letter for each state of a task and of a graph, and for each signal. They are in every database there is: a letter
#: may be added, and is never changed or used again.
STATE_LETTERS: Final[Mapping[_Name, str]] = {
    None: "-",
    "unscheduled": "u",
    "blocked": "b",
    "pending": "p",
    "waiting": "w",
    "running": "r",
    "stopping": "t",
    "successful": "s",
    "failed": "f",
    "error": "e",
    "canceled": "c",
    "canceling": "g",
    "skipped": "k",
    "finished": "d",
    UNREADABLE: "?",
}
SIGNAL_LETTERS: Final[Mapping[_Name, str]] = {
    None: "-",
    "release": "R",
    "block": "B",
    "doom": "D",
    "skip": "S",
    "mend": "M",
    "reuse": "U",
    "admit": "A",
    "unadmit": "N",
    "claim": "C",
    "succeed": "Y",
    "fail": "F",
    "lose": "L",
    "return": "V",
    "expire": "X",
    "deadline": "Z",
    "cancel": "K",
    "rerun": "G",
}
_MOVES: Final = {
    f"{at}{by}{to}": (source, target, signal)
    for source, at in STATE_LETTERS.items()
    for signal, by in SIGNAL_LETTERS.items()
    for target, to in STATE_LETTERS.items()
    if target is not None
}
#: There are some thousand bots and some dozen reasons.
_NAMES_KEPT: Final = 10_000


#: One thing that happened to a subject: source, target, signal, attempt, bot and reason.
Fact: TypeAlias = tuple[_Name, str, _Name, int | None, _Name, _Name]


class Unreadable(ValueError):
    """This is not how facts are written."""


class _Written(msgspec.Struct, array_like=True):
    """A fact as it stands in a row."""

    move: str
    attempt: int | None = None
    bot: _Name = None
    reason: _Name = None


_READER: Final = msgspec.json.Decoder(list[_Written])


def written(move: str, attempt: int | None, bot: _Name, reason: _Name) -> str:
    """Write down what happened: the move (`spelled`), which attempt, who, and why."""
    if bot is None:
        return _nobodys(move, attempt, reason)
    if reason is None:
        return f"[{move},{attempt or 'null'},{_quoted(bot)}]"
    return f"[{move},{attempt or 'null'},{_quoted(bot)},{_quoted(reason)}]"


def spelled(source: _Name, target: str, signal: _Name) -> str:
    """Spell from where to where a move led, and by which signal."""
    return f'"{STATE_LETTERS[source]}{SIGNAL_LETTERS[signal]}{STATE_LETTERS[target]}"'


def read(facts: str) -> list[Fact]:
    """Read the facts of a row; it raises Unreadable."""
    try:
        return [(*_MOVES[one.move], one.attempt, one.bot, one.reason) for one in _READER.decode(facts)]
    except (KeyError, msgspec.MsgspecError) as fault:
        raise Unreadable(facts) from fault


@lru_cache(maxsize=_NAMES_KEPT)
def _nobodys(move: str, attempt: int | None, reason: _Name) -> str:
    """Write down what no bot had a part in: it is the same for many tasks."""
    if not attempt and reason is None:
        return f"[{move}]"
    return f"[{move},{attempt or 'null'},null,{_quoted(reason)}]"


@lru_cache(maxsize=_NAMES_KEPT)
def _quoted(name: _Name) -> str:
    return msgspec.json.encode(name).decode()
