"""What somebody asked a server, and what it answered: a file that outlives whoever writes it.

A line is written before each question and after each answer, and is on the disk before anything else happens. Whoever
opens the file again is given the answers that came, in order, and goes on with the question that has none.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

import msgspec

from taskyard.core.graph.errors import Fault
from taskyard.lifecycle.commands import BulkOutcome, Done, Lease, Refusal, Renewed
from taskyard.lifecycle.poll import PollOutcome
from taskyard.lifecycle.submit import Submitted

_TYPES: Final[dict[str, type[Any]]] = {
    one.__name__: one for one in (BulkOutcome, Done, Fault, Lease, PollOutcome, Refusal, Renewed, Submitted)
}


@dataclass(frozen=True)
class Line:
    """A question, and its answer if there was one."""

    call: str
    said: dict[str, Any]
    answered: bool
    answer: Any


class Journal:
    """The file, and what was in it when it was opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = _read(path)
        self.at_ms = max((line["at"] for line in lines), default=0)
        self._answers = [told(line["ack"]) for line in lines if "ack" in line]
        self._next = 0
        self._file = path.open("a", encoding="utf-8")

    @property
    def is_live(self) -> bool:
        """Whether every answer that came has been given again."""
        return self._next >= len(self._answers)

    def ask(self, call: str, said: dict[str, Any], act: Callable[[], object], now: Callable[[], int]) -> Any:
        """Ask, unless the answer is known."""
        self._next += 1
        if self._next <= len(self._answers):
            return self._answers[self._next - 1]
        self._write({"ask": call, "said": spelled(said), "at": now()})
        answer = spelled(act())
        self._write({"ack": answer, "at": now()})
        return told(answer)

    def close(self) -> None:
        self._file.close()

    def lines(self) -> list[Line]:
        """Give everything that was asked, a question that was repeated only once."""
        found: list[Line] = []
        for line in _read(self._path):
            if "ask" in line:
                if found and not found[-1].answered:
                    assert (found[-1].call, found[-1].said) == (line["ask"], line["said"]), "it went on elsewhere"
                    found.pop()
                found.append(Line(line["ask"], line["said"], answered=False, answer=None))
            else:
                asked = found.pop()
                found.append(Line(asked.call, asked.said, answered=True, answer=told(line["ack"])))
        return found

    def _write(self, line: dict[str, object]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def spelled(value: object) -> Any:
    """Write a value as JSON can."""
    if isinstance(value, msgspec.Struct):
        return {"": type(value).__name__} | {name: spelled(getattr(value, name)) for name in value.__struct_fields__}
    if is_dataclass(value) and not isinstance(value, type):
        return {"": type(value).__name__} | {one.name: spelled(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode()
    if isinstance(value, tuple | list):
        return [spelled(one) for one in value]
    if isinstance(value, dict):
        return {name: spelled(one) for name, one in value.items()}
    return value


def told(value: Any) -> Any:
    """Read what was written; a word of an enum stays its text, which is equal to it."""
    if isinstance(value, list):
        return tuple(told(one) for one in value)
    if isinstance(value, dict) and "" in value:
        return _TYPES[value[""]](**{name: told(one) for name, one in value.items() if name})
    return value


def _read(path: Path) -> list[dict[str, Any]]:
    """Read every line; the last one may be torn, and then it was never written."""
    if not path.exists():
        return []
    texts = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(text) for text in texts[:-1]]
