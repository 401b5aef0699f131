"""Responses, pages, idempotency keys, and descriptions of request bodies."""

import hashlib
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from fastapi import Depends, Header, Query
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Send

from taskyard.core.graph.model import NAME_MAX
from taskyard.core.graph.scalars import name_fault
from taskyard.server.auth import Caller
from taskyard.server.errors import invalid_field
from taskyard.server.requests import CURSOR_MAX

#: The limit of items on a page, and the default.
PAGE_MAX: Final = 200
PAGE: Final = 50
#: The limit of labels on a page of names.
NAMES_MAX: Final = 10_000
JSON: Final = "application/json"

Limit = Annotated[int, Query(ge=1, le=PAGE_MAX, description="The most items to return.")]
Cursor = Annotated[str | None, Query(max_length=CURSOR_MAX, description="`next` of the page before.")]


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which page of a list a request asks for."""

    cursor: str | None
    limit: int


async def get_page(cursor: Cursor = None, limit: Limit = PAGE) -> PageRequest:
    """Read the parameters of a page."""
    return PageRequest(cursor, limit)


Page = Annotated[PageRequest, Depends(get_page)]
IdempotencyKey = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        max_length=NAME_MAX,
        description="A repeated request with the same key gets the first answer again.",
    ),
]


def reply(value: object, status: int = 200) -> Response:
    """Answer with a value as JSON."""
    return Response(msgspec.json.encode(value), status, media_type=JSON)


class Download(StreamingResponse):
    """A body of known size. If its pieces end before, the connection is closed without the rest."""

    async def stream_response(self, send: Send) -> None:
        """Send the pieces; do not end a body that is incomplete: the server closes the connection then."""
        left = int(self.headers["Content-Length"])

        async def send_complete(message: Message) -> None:
            nonlocal left
            left -= len(message.get("body", b""))
            if message["type"] == "http.response.start" or left == 0 or message["more_body"]:
                await send(message)

        await super().stream_response(send_complete)


def caller_key(caller: Caller, key: str) -> str:
    """Combine a key with its caller: other callers may use the same key for other requests."""
    if not key:
        return ""
    if fault := name_fault(key):
        raise invalid_field(fault, "Idempotency-Key")
    return hashlib.sha256(f"{caller.id or caller.actor}\0{key}".encode()).hexdigest()


def body(
    description: str, schema: dict[str, Any], required: bool = True, yaml: bool = False, example: object = None
) -> dict[str, Any]:
    """Describe the body of a route for the OpenAPI document."""
    kinds = (JSON, "application/yaml") if yaml else (JSON,)
    if "properties" in schema and not yaml:
        schema = {**schema, "additionalProperties": False}  # `Fields` refuses unknown fields
    shown = {} if example is None else {"example": example}
    content = {kind: {"schema": schema, **shown} for kind in kinds}
    return {"requestBody": {"description": description, "required": required, "content": content}}
