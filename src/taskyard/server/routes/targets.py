"""Routes of the targets to which events are delivered, such as a message broker."""

import asyncio
from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from taskyard.bus.relay import Backlog, read_backlogs
from taskyard.core.graph.model import NAME_MAX
from taskyard.core.graph.scalars import name_fault
from taskyard.lifecycle.commands import NO_SUBJECT
from taskyard.lifecycle.transaction import Transaction
from taskyard.server.dependencies import Context, CurrentCaller
from taskyard.server.errors import invalid_field, not_found
from taskyard.server.responses import reply
from taskyard.server.tokens import READ
from taskyard.wire import api

routes = APIRouter(prefix="/api/v1", tags=["graphs"])
#: The audit action.
REMOVE: Final = "remove_target"


@routes.get("/targets", response_model=api.EventTargets)
async def list_targets(context: Context, caller: CurrentCaller) -> Response:
    """List the targets to which all events are delivered, and how far behind each is."""
    context.readable_pools(caller, READ, "list targets of events")
    found = await context.read(lambda repo: read_backlogs(repo, context.engine.clock.now()))
    return reply(api.EventTargets([_view(one) for one in found]))


@routes.delete("/targets/{name}", status_code=204)
async def remove_target(name: str, context: Context, caller: CurrentCaller) -> Response:
    """Remove a target and what it has not got yet. Needs `admin`. A server that still has it adds it anew."""
    if fault := name_fault(name, NAME_MAX):
        raise invalid_field(fault, "name")
    context.require_admin(caller, f"remove target {name}")

    def act(transaction: Transaction) -> bool:
        if not transaction.repo.targets.remove(name):
            return False
        transaction.audit(caller.actor, REMOVE, NO_SUBJECT, name)
        return True

    if not await asyncio.to_thread(context.engine.transact, act):
        raise not_found("target", name)
    return Response(status_code=204)


def _view(one: Backlog) -> api.EventTarget:
    return api.EventTarget(one.target, one.events, one.age_ms)
