"""The OpenAPI document: what FastAPI derives from the routes, plus problems, bounds and the bot API."""

from collections.abc import Iterable
from functools import reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from taskyard.core.graph.model import NAME_MAX
from taskyard.core.ids import KEY_DIGITS
from taskyard.server.errors import MEDIA_TYPE
from taskyard.wire import bot_protocol
from taskyard.wire.api import Problem

_ABOUT: Final = "Runs graphs of tasks on a fleet of machines. Times are milliseconds since 1970 in UTC."
_REF: Final = "#/components/schemas/{model}"
_PROBLEM: Final = {"content": {MEDIA_TYPE: {"schema": {"$ref": _REF.format(model="Problem")}}}}
_BOT_ROUTES: Final[dict[str, tuple[str, type, type | None]]] = {
    "hello": ("Begin a session, or report what has changed.", bot_protocol.Hello, bot_protocol.Welcome),
    "poll": ("Report everything at once, and ask for work.", bot_protocol.Poll, bot_protocol.Polled),
    "goodbye": ("End a session.", bot_protocol.Goodbye, None),
    "trouble": ("Report an error of the bot itself.", bot_protocol.Trouble, None),
}
#: Problems that a route may answer with, by where they are possible.
_EVERYWHERE: Final = {"500": "A bug of the server; nothing was done.", "503": "The database is not available."}
_API: Final = {
    "400": "The request is invalid; every fault is listed.",
    "401": "The token is missing or not valid.",
    "403": "The token lacks a scope, which is named.",
    "429": "The server is overloaded; try again later.",
}
_WITH_ID: Final = {"404": "It does not exist."}
_BOT_UNKNOWN: Final = {"404": "There is no such bot: it must send hello first."}
_TEMPLATE_UNKNOWN: Final = {"404": "There is nothing of this name to launch."}
_WITH_BODY: Final = {
    "408": "The body arrived too slowly.",
    "413": "The body is too large.",
    "415": "The body is compressed, or of an unsupported type.",
}
_ID: Final = {"pattern": f"^[0-7][0-9a-f]{{{KEY_DIGITS - 1}}}$"}
_NAMED: Final = {"minLength": 1, "maxLength": NAME_MAX}
_PAIR: Final = {"pattern": ":"}
#: The form of parameters: other values are refused, or find nothing.
_PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    "bot_id": _NAMED,
    "cursor": {"pattern": "^[A-Za-z0-9_-]*={0,2}$"},
    "dimension": _PAIR,
    "graph_id": _ID,
    "key": _NAMED,
    "name": _NAMED,
    "subject": _ID,
    "tag": _PAIR,
    "task_id": _ID,
    "token_id": {"pattern": "^[0-9A-Za-z]+$"},
}
#: The types of values that each bound applies to.
_BOUNDS: Final = {
    "string": {"pattern", "minLength", "maxLength"},
    "integer": {"minimum", "maximum"},
    "array": {"maxItems"},
    "object": {"maxProperties"},
}
_CHANGES: Final = {"409": "It conflicts with what exists, or that is not complete yet."}
_OUTPUT: Final = {"416": "The output has no bytes in that range."}
#: The prefix of these schemas' names: the user API has types with the same names.
PREFIX: Final = "Bot"


def describe(app: FastAPI, version: str) -> dict[str, Any]:
    """Describe an app."""
    found = get_openapi(title="Taskyard", version=version, routes=app.routes, description=_ABOUT)
    schemas = found.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    problem = TypeAdapter(Problem).json_schema(ref_template=_REF)
    schemas.update(problem.pop("$defs", {}), Problem=problem)
    _add_bots(found["paths"], schemas)
    found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            _add_problems_and_bounds(path, method, operation)
    return found


def _add_bots(paths: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Add the routes of the bot API, which are not FastAPI's."""
    schemas.update(bot_schemas(kind for _, *kinds in _BOT_ROUTES.values() for kind in kinds if kind is not None))
    for name, (summary, request, answer_type) in _BOT_ROUTES.items():
        responses: dict[str, Any] = {"204": {"description": "Done."}}
        if answer_type is not None:
            responses = {"200": {"description": "What the bot needs to know.", "content": _json_body(answer_type)}}
        paths[f"/api/v1/bot/{name}"] = {
            "post": {
                "tags": ["bots"],
                "summary": summary,
                "operationId": f"bot_{name}",
                "requestBody": {"required": True, "content": _json_body(request)},
                "responses": responses,
            }
        }


def _json_body(kind: type) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(model=bot_schema_name(kind))}}}


def _add_problems_and_bounds(path: str, method: str, operation: dict[str, Any]) -> None:
    """Add the problems that a route may answer with, and the bounds of its parameters."""
    for parameter in operation.get("parameters", ()):
        # A name in a path must not be empty; in a query it may be.
        if parameter["in"] == "path" or parameter["name"] not in {"key", "name"}:
            _bound(parameter["schema"], _PARAMETERS.get(parameter["name"], {}))
    is_api = path.startswith("/api/")
    operation["responses"].pop("422", None)
    parts = [
        _EVERYWHERE,
        _API if is_api else {},
        _WITH_ID if "{" in path else {},
        _TEMPLATE_UNKNOWN if path.endswith("/launches") and method == "post" else {},
        _BOT_UNKNOWN if path.startswith("/api/v1/bot/") and not path.endswith("/hello") else {},
        _WITH_BODY if "requestBody" in operation else {},
        _CHANGES if method != "get" else {},
        _OUTPUT if path.endswith("/output") else {},
    ]
    for part in parts:
        for status, description in part.items():
            operation["responses"][status] = {"description": description, **_PROBLEM}
    if is_api:
        operation["security"] = [{"token": []}]


def _bound(schema: dict[str, Any], bounds: dict[str, Any]) -> None:
    """Add bounds to the parts of a schema that they apply to: the value itself, a nullable value, or list items."""
    for part in schema.get("anyOf", [schema]):
        kind = part.get("type")
        part.update(_of_kind(kind, bounds))
        if kind == "array":
            part["items"].update(_of_kind(part["items"].get("type"), bounds))


def _of_kind(kind: str | None, bounds: dict[str, Any]) -> dict[str, Any]:
    return {name: bound for name, bound in bounds.items() if kind in _BOUNDS and name in _BOUNDS[kind]}


# JSON Schemas of the bot protocol. Values that pass through unread (`msgspec.Raw`) may be anything.


def bot_schemas(kinds: Iterable[type]) -> dict[str, Any]:
    """Describe message types, and the types in them, by name."""
    known: dict[type, type] = {}
    structs = [_describable(kind, known) for kind in kinds]
    return msgspec.json.schema_components(structs, ref_template="#/components/schemas/{name}")[1]


def bot_schema_name(kind: type) -> str:
    """Return the name of a message type's schema."""
    return f"{PREFIX}{kind.__name__}"


def _describable(kind: Any, known: dict[type, type]) -> Any:
    """Replace what msgspec cannot describe: a struct by a copy with a prefixed name, `Raw` by `Any`."""
    if kind is msgspec.Raw:
        return Any
    if get_origin(kind) in (Union, UnionType):
        return reduce(or_, [_describable(one, known) for one in get_args(kind)])
    if get_origin(kind) is Annotated:
        return _describable_bounds(kind, known)
    if get_origin(kind) in (list, tuple):
        return list[_describable(get_args(kind)[0], known)]  # type: ignore[misc]
    if isinstance(kind, TypeVar):
        return bot_protocol.TaskId
    origin = get_origin(kind)
    kind = origin if isinstance(origin, type) and issubclass(origin, msgspec.Struct) else kind
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if kind not in known:
            known[kind] = _renamed_struct(kind, known)
        return known[kind]
    return kind


def _describable_bounds(kind: Any, known: dict[type, type]) -> Any:
    """Describe a type with bounds; an enum with a subset of members becomes a list of words."""
    marks = [one.extra for one in kind.__metadata__ if one.extra and "one_of" in one.extra]
    if marks:
        return Literal[tuple(sorted(str(one) for one in marks[0]["one_of"]))]
    return Annotated[_describable(kind.__origin__, known), *kind.__metadata__]


def _renamed_struct(kind: type[msgspec.Struct], known: dict[type, type]) -> type:
    fields: list[Any] = []
    for one in msgspec.structs.fields(kind):
        field = (one.encode_name, _describable(one.type, known))
        if one.required:
            fields.append(field)
        elif one.default_factory is not msgspec.NODEFAULT:
            fields.append((*field, msgspec.field(default_factory=one.default_factory)))
        else:
            fields.append((*field, None if isinstance(one.default, msgspec.Raw) else one.default))
    renamed = msgspec.defstruct(bot_schema_name(kind), fields)
    renamed.__doc__ = kind.__doc__
    return renamed
