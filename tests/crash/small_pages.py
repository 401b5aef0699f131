"""Smaller pages, so that a few dozen tasks already take several transactions."""

from types import ModuleType
from typing import Final

from taskyard.engine import bulk_load, extend
from taskyard.engine import submit as engine_submit
from taskyard.lifecycle import propagate, reuse, selection, submit, transaction
from taskyard.lifecycle.admission import writes
from taskyard.lifecycle.doctor import repair

#: The constants that say how much fits into one transaction.
PLACES: Final[tuple[tuple[ModuleType, str], ...]] = (
    *((module, "PAGE_MAX") for module in (repair, extend, engine_submit, bulk_load, selection, submit, propagate)),
    (writes, "ENTRIES_MAX"),
    (transaction, "PROPAGATED_MAX"),
    (selection, "PROPAGATED_MAX"),
    (reuse, "_LEADER_WEIGHT"),  # at most a page
)


def shrink(page: int) -> None:
    """Let a transaction take `page` tasks, until this process ends."""
    for module, name in PLACES:
        assert isinstance(getattr(module, name), int)
        setattr(module, name, page)
