"""Smaller pages, so that what takes thousands of tasks elsewhere takes a few dozen here."""

from types import ModuleType
from typing import Final

from taskyard.engine import bulk_load, extend
from taskyard.engine import submit as engine_submit
from taskyard.lifecycle import propagate, selection, submit, transaction
from taskyard.lifecycle.admission import writes
from taskyard.lifecycle.doctor import repair

#: Where it is written how much fits into one transaction.
PLACES: Final[tuple[tuple[ModuleType, str], ...]] = (
    *((module, "PAGE_MAX") for module in (repair, extend, engine_submit, bulk_load, selection, submit, propagate)),
    (writes, "ENTRIES_MAX"),
    (transaction, "PROPAGATED_MAX"),
    (selection, "PROPAGATED_MAX"),
)


def shrink(page: int) -> None:
    """Let a transaction take `page` tasks, for the rest of this program's life."""
    for module, name in PLACES:
        assert isinstance(getattr(module, name), int)
        setattr(module, name, page)
