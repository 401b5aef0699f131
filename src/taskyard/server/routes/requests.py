"""The route of single requests, in the form of a task or of Swarming. Each becomes a graph of one task.

No field is dropped silently: one without a counterpart in a graph document is refused as not supported.
"""

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from taskyard.core.graph.errors import Fault, Faults, Path
from taskyard.core.graph.model import SECRET_BYTES_MAX, TAG_VALUE_MAX
from taskyard.core.graph.scalars import name_fault
from taskyard.core.ids import key_of
from taskyard.engine import submit
from taskyard.server import requests
from taskyard.server.dependencies import Context, CurrentCaller
from taskyard.server.errors import RequestRefused, invalid, invalid_field
from taskyard.server.requests import size_fault
from taskyard.server.responses import IdempotencyKey, body, caller_key
from taskyard.server.routes import graphs
from taskyard.wire import api

# Conversion to a graph document.


FaultsOf: TypeAlias = Callable[[object], Iterable[Fault]]
#: The label of the one task.
LABEL: Final = "request"
PREFIX: Final = f"tasks.{LABEL}."
#: The fields of a request and its parts. Durations are seconds, and are mapped to fields of a document.
_REQUEST: Final = {
    "name", "task", "priority", "tags", "properties", "expiration_secs", "task_slices", "user", "reruns", "routing",
    "request_uuid", "parent_task_id", "secret_bytes",
}  # fmt: skip
#: The fields that a request may have.
FIELDS: Final = frozenset(_REQUEST)
#: The fields that may be used together with `task`, because a task does not have them.
_BESIDE: Final = {"name", "task", "user", "reruns", "routing", "request_uuid", "parent_task_id", "secret_bytes"}
#: Replaces a faulty part, so that no other faults follow from it.
_NOTHING: Final = {"payload": {"command": ["true"]}}
_SLICE: Final = {"properties", "expiration_secs", "wait_for_capacity"}
_PROPERTIES: Final = {
    "command", "dimensions", "env", "execution_timeout_secs", "grace_period_secs", "idempotent",
    "io_timeout_secs", "outputs", "relative_cwd", "secret_bytes",
}  # fmt: skip
_SPANS: Final = {"execution_timeout_secs": "timeout", "io_timeout_secs": "io_timeout", "grace_period_secs": "grace"}


def as_document(given: object, faults_of: FaultsOf) -> dict[str, Any]:
    """Convert a request to a graph of one task; `faults_of` lists the faults of a document."""
    if not isinstance(given, dict):
        raise invalid("the body must be an object")
    faults = Faults()
    _note_secret_faults(given, faults)
    graph = _graph(given, faults)
    if own := faults.listed():
        listed = [api.Fault(one.message, one.path) for one in own]
        listed += [api.Fault(one.message, path_in_request(one.path)) for one in faults_of(graph)]
        raise invalid(f"the request has {len(listed)} fault{'s' * (len(listed) > 1)}", listed)
    return graph


def secret_bytes_of(given: object) -> bytes | None:
    """Return the secret bytes of a valid request, which has them once for all its slices."""
    found = next((text for _, text in _secret_texts(given)), None)
    return base64.b64decode(found) if isinstance(found, str) else None


def _note_secret_faults(given: Mapping[str, Any], faults: Faults) -> None:
    """Note what is wrong with secret bytes. No fault repeats any of them."""
    texts = list(_secret_texts(given))
    for at, text in texts:
        if (size := _decoded_size(text)) is None:
            faults.add(at, "must be a text in base64")
        elif size > SECRET_BYTES_MAX:
            faults.add(at, f"has {size} bytes; a request has at most {SECRET_BYTES_MAX}")
        elif text != texts[0][1]:
            faults.add(at, "differs from that of another slice; all slices share one")


def _decoded_size(text: object) -> int | None:
    try:
        return len(base64.b64decode(text, validate=True)) if isinstance(text, str) else None
    except (binascii.Error, ValueError):
        return None


def _secret_texts(given: object) -> Iterator[tuple[Path, object]]:
    """Find the secret bytes of a request: its own, or those in the properties of its slices."""
    slices = _field(given, "task_slices")
    entries = enumerate(slices) if isinstance(slices, list) else ()
    places: list[tuple[Path, object]] = [((), given), (("properties",), _field(given, "properties"))]
    places += [(("task_slices", at, "properties"), _field(one, "properties")) for at, one in entries]
    for place, holder in places:
        if isinstance(holder, dict) and "secret_bytes" in holder:
            yield (*place, "secret_bytes"), holder["secret_bytes"]


def _field(holder: object, name: str) -> object:
    return holder.get(name) if isinstance(holder, dict) else None


def faults_in(given: object, faults_of: FaultsOf) -> list[api.Fault]:
    """List the faults of a request whose syntax is faulty already, so that all are reported together."""
    try:
        document = as_document(given, faults_of)
    except RequestRefused as fault:
        return fault.problem.faults
    return [api.Fault(one.message, path_in_request(one.path)) for one in faults_of(document)]


def path_in_request(path: str) -> str:
    """Convert a fault's path in the document to its path in the request."""
    return path.removeprefix(PREFIX)


def _graph(given: Mapping[str, Any], faults: Faults) -> dict[str, Any]:
    _unsupported(given, _REQUEST, (), faults)
    _check_relations(given, faults)
    task = _own_task(given, faults) if "task" in given else _task(given, faults)
    if "user" in given:
        task = _with_user(task, given["user"], faults)
    node = {"task": task} | ({"reruns": given["reruns"]} if "reruns" in given else {})
    return {"tasks": {LABEL: node}} | {name: given[name] for name in ("name", "routing") if name in given}


def _check_relations(given: Mapping[str, Any], faults: Faults) -> None:
    """Check what is about the request and not about its task."""
    uuid, parent = given.get("request_uuid"), given.get("parent_task_id")
    if uuid is not None and (fault := name_fault(uuid) if isinstance(uuid, str) else "must be a string"):
        faults.add(("request_uuid",), fault)
    if parent is not None and not _is_id(parent):
        faults.wrong(("parent_task_id",), "the id of a task", parent)


def _is_id(given: object) -> bool:
    try:
        return isinstance(given, str) and bool(key_of(given))
    except ValueError:
        return False


def _own_task(given: Mapping[str, Any], faults: Faults) -> object:
    for name in sorted(given.keys() & (_REQUEST - _BESIDE)):
        faults.add((name,), "must not be used together with `task`")
    return given["task"]


def _with_user(task: object, user: object, faults: Faults) -> object:
    """Add the user as a tag, as Swarming does."""
    if not isinstance(user, str) or len(user) > TAG_VALUE_MAX or "\0" in user:
        faults.wrong(("user",), f"a string of at most {TAG_VALUE_MAX} characters", user)
        return task
    if not isinstance(task, dict):
        return task  # the document check reports it
    tags = task.get("tags", [])
    if isinstance(tags, dict) and all(isinstance(value, str) for value in tags.values()):
        tags = [f"{key}:{value}" for key, value in tags.items()]
    return task | {"tags": [*tags, f"user:{user}"] if isinstance(tags, list) else tags}


def _task(given: Mapping[str, Any], faults: Faults) -> dict[str, Any]:
    task: dict[str, Any] = {}
    if "priority" in given:
        task["priority"] = given["priority"]
    if "tags" in given:
        task["tags"] = _tags(given["tags"], faults)
    if "task_slices" not in given:
        one = {name: given[name] for name in ("properties", "expiration_secs") if name in given}
        return task | _slice(one, (), faults, task)
    slices = given["task_slices"]
    if not isinstance(slices, list) or not slices:
        faults.wrong(("task_slices",), "a list of slices", slices)
        return task | _NOTHING
    return task | {"slices": [_slice(one, ("task_slices", at), faults, task) for at, one in enumerate(slices)]}


def _slice(given: object, at: tuple[str | int, ...], faults: Faults, task: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(given, dict):
        faults.wrong(at, "an object", given)
        return dict(_NOTHING)
    _unsupported(given, _SLICE, at, faults)
    properties, at_properties = given.get("properties"), (*at, "properties")
    if not isinstance(properties, dict):
        faults.wrong(at_properties, "an object", properties)
        return dict(_NOTHING)
    _unsupported(properties, _PROPERTIES, at_properties, faults)
    found: dict[str, Any] = {"payload": _payload(properties, at_properties, faults)}
    if "dimensions" in properties:
        found["dimensions"] = _pairs(properties["dimensions"], (*at_properties, "dimensions"), faults)
    if "expiration_secs" in given:
        found["expires"] = _span(given["expiration_secs"], (*at, "expiration_secs"), faults)
    if "wait_for_capacity" in given:
        found["wait_for_capacity"] = given["wait_for_capacity"]
    if "idempotent" in properties:
        task["idempotent"] = properties["idempotent"]
    return found


def _payload(properties: Mapping[str, Any], at: tuple[str | int, ...], faults: Faults) -> dict[str, Any]:
    payload: dict[str, Any] = {"command": properties.get("command")}
    for name, ours in _SPANS.items():
        if name in properties:
            payload[ours] = _span(properties[name], (*at, name), faults)
    if "env" in properties:
        payload["env"] = _pairs(properties["env"], (*at, "env"), faults)
    if "outputs" in properties:
        payload["outputs"] = properties["outputs"]
    if "relative_cwd" in properties:
        payload["cwd"] = properties["relative_cwd"]
    return payload


def _span(given: object, at: tuple[str | int, ...], faults: Faults) -> str:
    text = str(given) if isinstance(given, str) and given.isascii() else given
    if isinstance(text, str) and text.isdecimal() and len(text) <= 9:
        text = int(text)
    if type(text) is not int or not 0 <= text <= 10**9:
        faults.wrong(at, "a number of seconds", given)
        return "1s"
    return f"{text}s"


def _pairs(given: object, at: tuple[str | int, ...], faults: Faults) -> dict[str, Any]:
    """Read `[{key, value}, ...]`, or an object; a repeated key has several values."""
    if isinstance(given, dict):
        return given
    found: dict[str, Any] = {}
    for place, one in enumerate(given if isinstance(given, list) else [given]):
        if not isinstance(one, dict) or set(one) != {"key", "value"} or not isinstance(one["key"], str):
            faults.wrong((*at, place), "an object of key and value", one)
        elif one["key"] in found:
            before = found[one["key"]]
            found[one["key"]] = [*(before if isinstance(before, list) else [before]), one["value"]]
        else:
            found[one["key"]] = one["value"]
    return found


def _tags(given: object, faults: Faults) -> object:
    """Read `["key:value", ...]`, in which a key may be repeated, or an object."""
    if not isinstance(given, list):
        return given
    good = []
    for place, one in enumerate(given):
        if isinstance(one, str) and ":" in one:
            good.append(one)
        else:
            faults.wrong(("tags", place), "a string key:value", one)
    return good


def _unsupported(given: Mapping[str, Any], known: set[str], at: tuple[str | int, ...], faults: Faults) -> None:
    for name in given:
        if name not in known:
            faults.add((*at, name), f"not supported yet{faults.meant(name, known)}")


routes = APIRouter(prefix="/api/v1", tags=["graphs"])
_TAKEN = body(
    "A name, and a task as in a graph document, or properties and slices as in Swarming.",
    {
        "type": "object",
        "properties": {name: {} for name in sorted(FIELDS)}
        | {
            "name": {"type": "string"},
            "task": {"type": "object"},
            "reruns": {"type": ["integer", "object"]},
            "routing": {"type": "string"},
            "user": {"type": "string", "description": "For whom it runs; left out, the sender."},
            "request_uuid": {
                "type": "string",
                "description": "An idempotency key, instead of the header: a repeat is an echo.",
            },
            "parent_task_id": {
                "type": "string",
                "description": "The running task with which this one ends. Needs `submit` there.",
            },
            "secret_bytes": {"type": "string", "contentEncoding": "base64", "description": "At most 20 KiB."},
        },
        "additionalProperties": False,
    },
    yaml=True,
    example={"name": "one", "task": {"payload": {"command": ["make"]}, "dimensions": {"pool": "default"}}},
)
_MADE = {200: {"model": api.Submitted, "description": "It was stored before."}}


@routes.post("/requests", status_code=201, response_model=api.Submitted, responses=_MADE, openapi_extra=_TAKEN)  # type: ignore[arg-type]
async def submit_request(
    request: Request, context: Context, caller: CurrentCaller, key: IdempotencyKey = ""
) -> Response:
    """Store a single task. Needs `submit` in every pool that it names; with a priority below 20 also another right."""

    def faults_of(document: object) -> tuple[Fault, ...]:
        if too_many := size_fault(document, context.settings.tasks_max):
            return (Fault(too_many.path, too_many.message),)
        return submit.read(document, context.engine.clock.now(), context.engine.scheduler_id).faults

    given = await requests.read_document(request, lambda found: faults_in(found, faults_of))
    document = as_document(given, faults_of)
    assert isinstance(given, dict), "as_document refuses anything else"
    uuid, parent = given.get("request_uuid"), given.get("parent_task_id")
    if key and uuid and uuid != key:
        raise invalid_field("differs from the header Idempotency-Key: send one of them", "request_uuid")
    try:
        return await graphs.submit(
            context,
            caller,
            document,
            key=caller_key(caller, uuid or key),
            parent=parent,
            parent_field="parent_task_id",
            secret_bytes=secret_bytes_of(given),
            small=requests.is_small(request, document),
        )
    except RequestRefused as fault:
        faults = [api.Fault(one.message, path_in_request(one.path)) for one in fault.problem.faults]
        raise RequestRefused(replace(fault.problem, faults=faults), fault.headers) from None
