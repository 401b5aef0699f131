"""Removes files that nothing refers to: a thread of the server that makes a pass from time to time."""

import asyncio
import logging
import random
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from taskyard.engine.errors import EngineError, outages
from taskyard.files.gc import SETTLE_SECONDS, Removed, collect_garbage
from taskyard.files.store import UNUSED_SECONDS, StoreBroken
from taskyard.server.context import AppContext
from taskyard.server.errors import RequestRefused

#: The pause before the first pass, and between two; random, so that servers of one store do not all begin at once.
FIRST_SECONDS: Final = 600.0
PAUSE_SECONDS: Final = 6 * 3_600.0
_LOG: Final = logging.getLogger("taskyard.files")


async def collect_forever(context: AppContext) -> None:
    """Make passes until the server stops."""
    pause = FIRST_SECONDS
    while True:
        with suppress(TimeoutError):
            await asyncio.wait_for(context.closing.wait(), pause * random.uniform(1, 1.5))  # noqa: S311 - no secret
            return
        try:
            removed = await asyncio.to_thread(collect_once, context)
        except (StoreBroken, EngineError, RequestRefused) as error:
            _LOG.warning("unused files could not be removed: %s", error)
        except Exception:  # noqa: BLE001 - the next pass is made all the same
            _LOG.exception("unused files could not be removed")
        else:
            _LOG.info("removed %d unused trees and %d chunks, %d bytes", removed.trees, removed.chunks, removed.bytes)
        pause = PAUSE_SECONDS


def collect_once(context: AppContext) -> Removed:
    """Make a pass, if this server keeps files."""
    if not context.files.is_used:
        return Removed()

    def used(trees: Collection[str]) -> set[str]:
        with outages(), context.engine.store.read() as repo:
            return repo.files.used_trees(trees)

    return collect_garbage(context.files.store, used, unused_seconds=UNUSED_SECONDS, settle_seconds=SETTLE_SECONDS)
