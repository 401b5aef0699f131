"""A journal of requests and answers, in a file that survives the process that writes it.

A line is written and synced before each request and after each answer. A process that opens the file again gets the
answers from it, in order, and goes on with the request that has no answer.
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
    """A request, and its answer if there was one."""

    call: str
    arguments: dict[str, Any]
    answered: bool
    answer: Any


class Journal:
    """The file, and its content when it was opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = _read(path)
        self.at_ms = max((line["at"] for line in lines), default=0)
        self._answers = [decoded(line["ack"]) for line in lines if "ack" in line]
        self._next = 0
        self._file = path.open("a", encoding="utf-8")

    @property
    def is_live(self) -> bool:
        """Whether every answer in the file has been used."""
        return self._next >= len(self._answers)

    def ask(self, call: str, arguments: dict[str, Any], act: Callable[[], object], now: Callable[[], int]) -> Any:
        """Send the request, or return the answer from the file."""
        self._next += 1
        if self._next <= len(self._answers):
            return self._answers[self._next - 1]
        self._write({"ask": call, "arguments": encoded(arguments), "at": now()})
        answer = encoded(act())
        self._write({"ack": answer, "at": now()})
        return decoded(answer)

    def close(self) -> None:
        self._file.close()

    def lines(self) -> list[Line]:
        """All requests; a repeated one only once."""
        found: list[Line] = []
        for line in _read(self._path):
            if "ask" in line:
                if found and not found[-1].answered:
                    assert (found[-1].call, found[-1].arguments) == (line["ask"], line["arguments"]), (
                        "the process did not go on with the open request"
                    )
                    found.pop()
                found.append(Line(line["ask"], line["arguments"], answered=False, answer=None))
            else:
                request = found.pop()
                found.append(Line(request.call, request.arguments, answered=True, answer=decoded(line["ack"])))
        return found

    def _write(self, line: dict[str, object]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def encoded(value: object) -> Any:
    """Convert a value to what JSON can hold."""
    if isinstance(value, msgspec.Struct):
        return {"": type(value).__name__} | {name: encoded(getattr(value, name)) for name in value.__struct_fields__}
    if is_dataclass(value) and not isinstance(value, type):
        return {"": type(value).__name__} | {one.name: encoded(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode()
    if isinstance(value, tuple | list):
        return [encoded(one) for one in value]
    if isinstance(value, dict):
        return {name: encoded(one) for name, one in value.items()}
    return value


def decoded(value: Any) -> Any:
    """Convert back from JSON; an enum stays text, which is equal to it."""
    if isinstance(value, list):
        return tuple(decoded(one) for one in value)
    if isinstance(value, dict) and "" in value:
        return _TYPES[value[""]](**{name: decoded(one) for name, one in value.items() if name})
    return value


def _read(path: Path) -> list[dict[str, Any]]:
    """Read every line; an incomplete last line counts as not written."""
    if not path.exists():
        return []
    texts = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(text) for text in texts[:-1]]
