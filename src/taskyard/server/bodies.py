"""What a request brings: read no further than it may go, and parsed as strictly as any document.

What is large is parsed by a thread, so that nobody else waits for it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Final, TypeAlias

from starlette.requests import Request

from taskyard.server.problems import RETRY_CROWD_S, Refused, invalid, refused
from taskyard.wire import api
from taskyard.wire.faults import UnreadableDocument
from taskyard.wire.reading import DOCUMENT_BYTES_MAX, read_document

#: What is said beside a document: a wish, a setting, a token.
SMALL_MAX: Final = 65_536
#: Texts up to this size are parsed at once: it takes less than handing them to a thread.
AT_ONCE_MAX: Final = 16_384
#: How long somebody may take to send a body.
SENT_MAX_S: Final = 60
#: How much of all bodies together is held while they come in.
HELD_MAX: Final = 134_217_728
#: From which size on a document is large, and how many of these are worked on at once.
LARGE_BYTES: Final = 1_048_576
LARGE_MAX: Final = 4
#: Says what is wrong with a value.
Judge: TypeAlias = Callable[[object], list[api.Fault]]
_PLAIN: Final = "identity"
_JSON: Final = "application/json"
_YAML: Final = ("application/yaml", "application/x-yaml", "text/yaml")


class Hands:
    """How much of what is being sent the server holds at once. Used by one thread, the one of the event loop."""

    def __init__(self, most: int = HELD_MAX) -> None:
        self._most = most
        self._held = 0

    def take(self, size: int) -> None:
        """Hold more, or refuse it."""
        if self._held + size > self._most:
            retry = {"Retry-After": str(RETRY_CROWD_S)}
            raise refused(429, "overloaded", "too much is being sent at once", headers=retry)
        self._held += size

    def give(self, size: int) -> None:
        """Hold less."""
        self._held -= size


@asynccontextmanager
async def worked_on(request: Request, judge: Judge | None = None) -> AsyncIterator[object]:
    """Read a document and wait for room to work on it: of large ones, which take ten times their size, few have it.

    It is read first: whoever sends slowly keeps nobody else waiting.
    """
    expect(request, (_JSON, *_YAML))
    async with held(request, DOCUMENT_BYTES_MAX) as body:
        large: asyncio.Semaphore = request.app.state.desk.large
        async with large if len(body) > LARGE_BYTES else nullcontext():
            yield await _read(request, body, judge)


@asynccontextmanager
async def held(request: Request, most: int) -> AsyncIterator[bytes]:
    """Read a body of at most so many bytes, and hold it until it is done with."""
    if request.headers.get("content-encoding", _PLAIN).strip().lower() != _PLAIN:
        raise refused(415, "unsupported", "bodies are taken as they are, not compressed: leave out Content-Encoding")
    said = request.headers.get("content-length", "")
    if said.isdecimal() and (len(said) > 12 or int(said) > most):
        raise _too_large(most)
    hands: Hands = request.app.state.desk.hands
    body = bytearray()
    try:
        await _receive(request, hands, body, most)
        yield bytes(body)
    finally:
        hands.give(len(body))


def expect(request: Request, kinds: Collection[str]) -> None:
    """Refuse a body that says it is of another kind; one that says nothing is taken for what is read here."""
    if (kind := _kind(request)) and kind not in kinds:
        raise refused(415, "unsupported", f"a body of the type {kind} is not read here: send {' or '.join(kinds)}")


async def raw(request: Request, most: int) -> bytes:
    """Read a small body."""
    async with held(request, most) as body:
        return body


async def document(request: Request, judge: Judge | None = None, most: int = DOCUMENT_BYTES_MAX) -> object:
    """Read a body as JSON, or as YAML if its content type says so."""
    expect(request, (_JSON, *_YAML))
    return await _read(request, await raw(request, most), judge)


async def fields(request: Request, *, optional: bool = False) -> dict[str, Any]:
    """Read a small JSON object; where the body is optional, none is an empty one."""
    expect(request, (_JSON,))
    body = await raw(request, SMALL_MAX)
    if optional and not body.strip():
        return {}
    found = parsed(body, "body.json")
    if not isinstance(found, dict):
        raise invalid("the body must be an object")
    return found


async def _receive(request: Request, hands: Hands, body: bytearray, most: int) -> None:
    try:
        async with asyncio.timeout(SENT_MAX_S):
            async for piece in request.stream():
                hands.take(len(piece))
                body += piece
                if len(body) > most:
                    raise _too_large(most)
    except TimeoutError:
        raise refused(408, "too_slow", f"the body did not come within {SENT_MAX_S} seconds") from None


async def _read(request: Request, body: bytes, judge: Judge | None) -> object:
    name = "body.yaml" if _is_yaml(request) else "body.json"
    if len(body) <= AT_ONCE_MAX:
        return parsed(body, name, judge)
    return await asyncio.to_thread(parsed, body, name, judge)


def parsed(body: bytes, name: str, judge: Judge | None = None) -> object:
    """Parse a body, or say everything that is wrong with its text and, as far as one sees, with what it says."""
    try:
        return read_document(body, name)
    except UnreadableDocument as fault:
        faults = [api.Fault(one.message, _place(one.line, one.column)) for one in fault.faults]
        if judge is not None and fault.value is not None:
            faults += judge(fault.value)
        raise invalid("the body cannot be read", faults) from None
    except RecursionError:
        raise invalid("the body is nested too deeply") from None


def _place(line: int | None, column: int | None) -> str:
    return "" if line is None else f"line {line}" if column is None else f"line {line}, column {column}"


def _is_yaml(request: Request) -> bool:
    return _kind(request) in _YAML


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _too_large(most: int) -> Refused:
    return refused(413, "too_large", f"the body is larger than {most} bytes")


def plain_text(body: bytes) -> str:
    """Read text that every database can keep."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise invalid("the body is not UTF-8") from None
    if "\0" in text:
        raise invalid("the body has a NUL character")
    return text
