"""Reading requests: bodies with limits, small JSON objects, page cursors, byte ranges, and the number of tasks.

Large bodies are parsed on a thread, so that other requests do not wait.
"""

import asyncio
import base64
import binascii
import re
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from math import prod
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from starlette.requests import Request

from taskyard.core.graph.errors import Faults
from taskyard.core.graph.matrix import EXCLUDE
from taskyard.core.graph.model import DESCRIPTION_MAX, NAME_MAX
from taskyard.core.graph.payload import payloads
from taskyard.core.graph.scalars import name_fault
from taskyard.lifecycle.gc_pause import gc_paused
from taskyard.server.errors import RETRY_OVERLOADED_S, RequestRefused, invalid, invalid_field, refused
from taskyard.wire import api
from taskyard.wire.api import Fault
from taskyard.wire.documents import DOCUMENT_BYTES_MAX, UnreadableDocument
from taskyard.wire.documents import read_document as parse_document

#: The size limit of bodies that are not graph documents.
SMALL_BODY_BYTES_MAX: Final = 65_536
_SMALL_DIGITS: Final = len(str(SMALL_BODY_BYTES_MAX))
#: How many tasks a document may have that is validated on the event loop: some 2 ms.
SMALL_TASKS_MAX: Final = 100
#: Bodies up to this size are parsed on the event loop: that takes less time than a thread switch.
INLINE_PARSE_BYTES_MAX: Final = 16_384
#: How long a client may take to send a body.
BODY_READ_MAX_S: Final = 60
#: The size limit of all request bodies together that are held in memory while they arrive.
BODIES_BYTES_MAX: Final = 134_217_728
#: The size from which a document counts as large, and how many large ones are worked on at once.
LARGE_DOCUMENT_BYTES: Final = 1_048_576
LARGE_DOCUMENTS_MAX: Final = 4
#: Returns what is wrong with a document.
FindFaults: TypeAlias = Callable[[object], list[api.Fault]]
_PLAIN: Final = "identity"
_JSON: Final = "application/json"
_YAML: Final = ("application/yaml", "application/x-yaml", "text/yaml")


class BodyBudget:
    """Limits the memory for request bodies that are arriving. Only the thread of the event loop uses it."""

    def __init__(self, size_max: int = BODIES_BYTES_MAX) -> None:
        self._size_max = size_max
        self._held = 0

    def acquire(self, size: int) -> None:
        """Reserve memory, or refuse the request."""
        if self._held + size > self._size_max:
            retry = {"Retry-After": str(RETRY_OVERLOADED_S)}
            raise refused(429, "overloaded", "too much data is being sent at once", headers=retry)
        self._held += size

    def release(self, size: int) -> None:
        """Release memory."""
        self._held -= size


@asynccontextmanager
async def open_document(request: Request, find_faults: FindFaults | None = None) -> AsyncIterator[object]:
    """Read a document, then wait for a turn to work on it: a large one takes ten times its size of memory.

    It is read before the wait, so that a slow client does not keep others waiting.
    """
    check_content_type(request, (_JSON, *_YAML))
    async with open_body(request, DOCUMENT_BYTES_MAX) as received:
        body = bytes(received)
        large_documents: asyncio.Semaphore = request.app.state.context.large_documents
        async with large_documents if len(body) > LARGE_DOCUMENT_BYTES else nullcontext():
            yield await _read(request, body, find_faults)


@asynccontextmanager
async def open_body(request: Request, size_max: int) -> AsyncIterator[bytearray]:
    """Read a body of limited size, and keep its memory reserved until the context ends.

    It is not copied: a copy of each chunk of a file is a tenth of the time of an upload (`benchmarks.files`).
    """
    if request.headers.get("content-encoding", _PLAIN).strip().lower() != _PLAIN:
        raise refused(415, "unsupported", "compressed bodies are not supported: leave out Content-Encoding")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > 12 or int(declared) > size_max):
        raise _too_large(size_max)
    body_budget: BodyBudget = request.app.state.context.body_budget
    body = bytearray()
    try:
        await _receive(request, body_budget, body, size_max)
        yield body
    finally:
        body_budget.release(len(body))


def check_content_type(request: Request, kinds: Collection[str]) -> None:
    """Refuse a body whose Content-Type is not one of `kinds`; a missing Content-Type is accepted."""
    if (kind := _kind(request)) and kind not in kinds:
        raise refused(415, "unsupported", f"bodies of type {kind} are not supported here: send {' or '.join(kinds)}")


async def read_body(request: Request, size_max: int) -> bytes:
    """Read a body of limited size."""
    async with open_body(request, size_max) as body:
        return bytes(body)


async def read_document(
    request: Request, find_faults: FindFaults | None = None, size_max: int = DOCUMENT_BYTES_MAX
) -> object:
    """Read a body as JSON, or as YAML if its Content-Type says so."""
    check_content_type(request, (_JSON, *_YAML))
    return await _read(request, await read_body(request, size_max), find_faults)


async def read_object(request: Request, *, optional: bool = False) -> dict[str, Any]:
    """Read a small JSON object; an optional body that is missing counts as an empty object."""
    check_content_type(request, (_JSON,))
    body = await read_body(request, SMALL_BODY_BYTES_MAX)
    if optional and not body.strip():
        return {}
    found = parse(body, "body.json")
    if not isinstance(found, dict):
        raise invalid("the body must be an object")
    return found


async def _receive(request: Request, body_budget: BodyBudget, body: bytearray, size_max: int) -> None:
    try:
        async with asyncio.timeout(BODY_READ_MAX_S):
            async for piece in request.stream():
                body_budget.acquire(len(piece))
                body += piece
                if len(body) > size_max:
                    raise _too_large(size_max)
    except TimeoutError:
        raise refused(408, "too_slow", f"the body did not arrive within {BODY_READ_MAX_S} seconds") from None


async def _read(request: Request, body: bytes, find_faults: FindFaults | None) -> object:
    name = "body.yaml" if _is_yaml(request) else "body.json"
    if len(body) <= INLINE_PARSE_BYTES_MAX:
        return parse(body, name, find_faults)
    return await asyncio.to_thread(_parse_on_thread, body, name, find_faults)


def _parse_on_thread(body: bytes, name: str, find_faults: FindFaults | None) -> object:
    # All objects of a document stay, so collections meanwhile are in vain (`benchmarks.submit`).
    with gc_paused() if len(body) > LARGE_DOCUMENT_BYTES else nullcontext():
        return parse(body, name, find_faults)


def parse(body: bytes, name: str, find_faults: FindFaults | None = None) -> object:
    """Parse a body, or refuse it with all faults of its syntax and, as far as it can be read, of its content."""
    try:
        return parse_document(body, name)
    except UnreadableDocument as fault:
        faults = [api.Fault(one.message, _place(one.line, one.column)) for one in fault.faults]
        if find_faults is not None and fault.value is not None:
            faults += find_faults(fault.value)
        raise invalid("the body cannot be read", faults) from None
    except RecursionError:
        raise invalid("the body is nested too deeply") from None


def _place(line: int | None, column: int | None) -> str:
    return "" if line is None else f"line {line}" if column is None else f"line {line}, column {column}"


def _is_yaml(request: Request) -> bool:
    return _kind(request) in _YAML


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _too_large(size_max: int) -> RequestRefused:
    return refused(413, "too_large", f"the body is larger than {size_max} bytes")


def decode_text(body: bytes) -> str:
    """Decode text that every database can store."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise invalid("the body is not valid UTF-8") from None
    if "\0" in text:
        raise invalid("the body contains a NUL character")
    return text


# Fields of a small object.


T = TypeVar("T")
_MISSING = object()


class Fields:
    """Reads the fields of one JSON object, collects every fault, and raises them together in `check`."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = dict(values)
        self._known: list[str] = []
        self._faults = Faults()

    def has(self, name: str) -> bool:
        """Whether a field is present."""
        return name in self._values

    def is_given(self, name: str) -> bool:
        """Whether a field is present and not null; a null field is dropped."""
        if self._values.get(name, _MISSING) is None:
            del self._values[name]
        self._known.append(name)
        return name in self._values

    def flag(self, name: str, default: bool) -> bool:
        """Read true or false."""
        return self._read(name, default, "true or false", lambda value: isinstance(value, bool))

    def number(self, name: str, default: int | None, least: int, most: int) -> int | None:
        """Read an integer or null."""
        takes = f"null or an integer from {least} to {most}"
        return self._read(name, default, takes, lambda value: value is None or _is_within(value, least, most))

    def fraction(self, name: str, default: float) -> float:
        """Read a number from 0 to 1."""
        return float(self._read(name, default, "a number from 0 to 1", _is_fraction))

    def text(self, name: str, default: str | None, most: int = DESCRIPTION_MAX) -> str | None:
        """Read a text or null."""
        takes = f"null or a string of 1 to {most} characters"
        return self._read(name, default, takes, lambda value: value is None or _is_text(value, most))

    def object(self, name: str, default: dict[str, Any]) -> dict[str, Any]:
        """Read an object."""
        return self._read(name, default, "an object", lambda value: isinstance(value, dict))

    def name(self, name: str, default: str, most: int = NAME_MAX) -> str:
        """Read a name; it is required if the default is empty."""
        value = self._read(name, default, "a string", lambda value: isinstance(value, str))
        if (value or not default) and (fault := name_fault(value, most)):
            self._faults.add((name,), fault)
        return value

    def choice(self, name: str, default: str, allowed: Collection[str]) -> str:
        """Read one of the allowed words."""
        return self._read(name, default, f"one of {', '.join(allowed)}", lambda value: value in allowed)

    def names(self, name: str, most: int, find_fault: Callable[[str], str | None]) -> tuple[str, ...]:
        """Read a list of texts; `find_fault` checks each."""
        takes = f"a list of at most {most} strings"
        none: list[str] = []
        found = self._read(name, none, takes, lambda value: _are_texts(value, most))
        for place, one in enumerate(found):
            if message := find_fault(one):
                self._faults.add((name, place), message)
        return tuple(found)

    def add_fault(self, name: str, message: str, *inside: str) -> None:
        """Add a fault that the caller has found in a field, or deeper in it."""
        self._faults.add((name, *inside), message)

    def check(self) -> None:
        """Refuse the object if anything in it is wrong."""
        for name in self._values:
            if name not in self._known:
                self._faults.add((name,), f"unknown field{self._faults.meant(name, self._known)}")
        if listed := self._faults.listed():
            faults = [api.Fault(one.message, one.path) for one in listed]
            raise invalid(f"the body has {len(faults)} fault{'s' * (len(faults) > 1)}", faults)

    def _read(self, name: str, default: T, takes: str, fits: Callable[[Any], bool]) -> T:
        self._known.append(name)
        value = self._values.get(name, _MISSING)
        if value is _MISSING:
            return default
        if not fits(value):
            self._faults.wrong((name,), takes, value)
            return default
        found: T = value
        return found


def _is_fraction(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _is_within(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _is_text(value: object, most: int) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= most and "\0" not in value


def _are_texts(value: object, most: int) -> bool:
    return isinstance(value, list) and len(value) <= most and all(isinstance(one, str) for one in value)


# Cursors: opaque texts that say where a page ended.


#: Longer than any cursor that the server writes.
CURSOR_MAX: Final = 1_024
_KEY: Final = msgspec.json.Decoder(tuple[int])
_NAME: Final = msgspec.json.Decoder(tuple[str])
_PAIR: Final = msgspec.json.Decoder(tuple[str, str])
_MOMENT: Final = msgspec.json.Decoder(tuple[int, str])


def encode_cursor(*place: int | str | None) -> str | None:
    """Write a cursor; None if there is no next page."""
    if place[0] is None:
        return None
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def cursor_key(text: str | None, first: int) -> int:
    """Read a cursor that holds a key."""
    return first if text is None else _within(_read_cursor(_KEY, text)[0])


def cursor_name(text: str | None, first: str) -> str:
    """Read a cursor that holds a name."""
    return first if text is None else _clean(_read_cursor(_NAME, text)[0])


def cursor_pair(text: str | None, first: tuple[str, str]) -> tuple[str, str]:
    """Read a cursor that holds two names."""
    if text is None:
        return first
    one, other = _read_cursor(_PAIR, text)
    return _clean(one), _clean(other)


def cursor_moment(text: str | None, first: tuple[int, str]) -> tuple[int, str]:
    """Read a cursor that holds a time and a name."""
    if text is None:
        return first
    at, id = _read_cursor(_MOMENT, text)
    return _within(at), _clean(id)


def _read_cursor(decoder: msgspec.json.Decoder[T], text: str) -> T:
    try:
        return decoder.decode(base64.b64decode(text.encode() + b"===", b"-_"))
    except (binascii.Error, UnicodeError, msgspec.MsgspecError):
        raise _bad() from None


def _within(number: int) -> int:
    if not -1 <= number < 2**63:
        raise _bad()
    return number


def _clean(text: str) -> str:
    if "\0" in text or not text.isprintable():
        raise _bad()
    return text


def _bad() -> RequestRefused:
    return invalid_field("is not a cursor; take it from `next` of the page before", "cursor")


# Byte ranges (RFC 9110): one range; a malformed header is ignored.


_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The bytes from `start` up to, but not including, `until`."""

    start: int
    until: int


def parse_range(header: str | None, size: int) -> ByteRange | None:
    """Return the requested range, cut to `size`: None for all bytes, an empty range if none of them exist."""
    found = _RANGE.fullmatch(header.strip()) if header else None
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        return ByteRange(max(0, size - int(found[2])), size) if int(found[2]) else ByteRange(size, size)
    start = int(found[1])
    until = int(found[2]) + 1 if found[2] else size
    if until <= start and found[2]:
        return None
    return ByteRange(start, max(start, min(until, size)))


# The number of tasks of a document, counted before any matrix is expanded: large documents take seconds each.


def check_size(document: object, tasks_max: int) -> None:
    """Refuse a document with more tasks than one request may have; excluded combinations count, too."""
    if fault := size_fault(document, tasks_max):
        raise invalid(f"{fault.path}: {fault.message}", [fault])


def size_fault(document: object, tasks_max: int) -> Fault | None:
    """Return the fault of a document with too many tasks, or None."""
    count = count_tasks(document)
    if count <= tasks_max:
        return None
    return Fault(
        f"has {count} tasks; the limit per request is {tasks_max}: extend the graph in steps, or split it", "tasks"
    )


def is_small(request: Request, document: object) -> bool:
    """Whether a document can be validated on the event loop.

    That takes less time than waking two threads (`benchmarks.endtoend`, submit to start when idle). A document
    with more tasks, or a body of unknown size, would delay other requests.
    """
    declared = request.headers.get("content-length", "")
    is_short = declared.isdecimal() and len(declared) <= _SMALL_DIGITS and int(declared) <= SMALL_BODY_BYTES_MAX
    return is_short and not _is_yaml(request) and count_tasks(document) <= SMALL_TASKS_MAX


def count_tasks(document: object) -> int:
    """Count the tasks of a graph document and of the graphs inside it; an invalid task counts as one."""
    tasks = document.get("tasks") if isinstance(document, dict) else None
    return sum(map(_count_node, tasks.values())) if isinstance(tasks, dict) else 0


def _count_node(node: object) -> int:
    if not isinstance(node, dict):
        return 1
    matrix, task = node.get("matrix"), node.get("task")
    # Slices may have payloads with an inner graph, too; each of them is parsed.
    payloads_found = payloads(task, ()) if isinstance(task, dict) else ()
    inner = sum(count_tasks(payload.get("graph")) for _, payload in payloads_found)
    axes = matrix.items() if isinstance(matrix, dict) else ()
    times = prod(len(axis) for name, axis in axes if name != EXCLUDE and isinstance(axis, list))
    return max(1, times) * (1 + inner)
