"""The route of single requests: each is a graph of one."""

from dataclasses import replace

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from taskyard.core.graph.faults import Fault
from taskyard.engine import submit
from taskyard.server import bodies, single
from taskyard.server.asking import TheCaller, TheDesk
from taskyard.server.problems import Refused
from taskyard.server.replies import Key, body, own_key
from taskyard.server.request_size import size_fault
from taskyard.server.routes import graphs
from taskyard.wire import api

routes = APIRouter(prefix="/api/v1", tags=["graphs"])
_TAKEN = body(
    "A name, and a task as in a graph document, or properties and slices as Swarming has them.",
    {
        "type": "object",
        "properties": {name: {} for name in sorted(single.FIELDS)}
        | {
            "name": {"type": "string"},
            "task": {"type": "object"},
            "reruns": {"type": ["integer", "object"]},
            "routing": {"type": "string"},
            "user": {"type": "string"},
        },
        "additionalProperties": False,
    },
    yaml=True,
    example={"name": "one", "task": {"payload": {"command": ["make"]}, "dimensions": {"pool": "default"}}},
)
_MADE = {200: {"model": api.Submitted, "description": "It had been stored before."}}


@routes.post("/requests", status_code=201, response_model=api.Submitted, responses=_MADE, openapi_extra=_TAKEN)  # type: ignore[arg-type]
async def submit_request(request: Request, desk: TheDesk, caller: TheCaller, key: Key = "") -> Response:
    """Store a single task. Needs `submit` in every pool that it names."""

    def faults_of(document: object) -> tuple[Fault, ...]:
        if too_many := size_fault(document, desk.settings.tasks_max):
            return (Fault(too_many.path, too_many.message),)
        return submit.read(document, desk.engine.clock.now(), desk.engine.scheduler_id).faults

    said = await bodies.document(request, lambda found: single.faults_in(found, faults_of))
    document = single.as_document(said, faults_of)
    try:
        return await graphs.submit(desk, caller, document, key=own_key(caller, key))
    except Refused as fault:
        faults = [api.Fault(one.message, single.path_in_request(one.path)) for one in fault.problem.faults]
        raise Refused(replace(fault.problem, faults=faults), fault.headers) from None
