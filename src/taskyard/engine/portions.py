"""Rows that are dealt with together, page by page, though one of them may be spoiled.

A page that fails is dealt with in halves, and these in halves, until whoever fails alone is found and set aside. Then
pages go on without it, so it keeps nobody waiting; now and then it is tried again. Nothing about it is written: whoever
mends the row finds it as it was.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from taskyard.core.ids import Key, text_of
from taskyard.engine.failpoints import Boundary
from taskyard.engine.pages import Transact
from taskyard.engine.passage import Passage
from taskyard.engine.troubles import Failed
from taskyard.lifecycle.commands import Choose
from taskyard.store.sessions import Taken

#: How many rows one transaction deals with.
ROWS_MAX: Final = 500
#: How many are set aside at most: each page looks past all of them. So many are no accident, and somebody will come.
ASIDE_MAX: Final = 10_000
#: How many of them are tried again in one sweep.
TRIED_AGAIN_MAX: Final = 20
#: What is the fault of a row. The database being away, or a lost race, is nobody's.
FAULTS: Final = (Failed, Taken)

#: Looks for some rows, and deals with those that are chosen; says how many these were.
Deal: TypeAlias = Callable[[Passage, int, Choose], int]

_LOG = logging.getLogger(__name__)


class Portions:
    """The rows of one chore."""

    def __init__(self, transact: Transact, boundary: Boundary, deal: Deal) -> None:
        self._transact = transact
        self._boundary = boundary
        self._deal = deal
        self.aside: dict[int, None] = {}  # in the order in which they are tried again

    def next(self) -> bool:
        """Deal with a page; say whether there was one, so that there may be more."""
        page: list[int] = []  # is known though the transaction fails

        def choose(found: Iterable[int]) -> list[int]:
            page[:] = [id for id in found if id not in self.aside][:ROWS_MAX]
            return page

        try:
            return self._carry_out(choose) > 0
        except FAULTS as fault:
            if not page or len(self.aside) >= ASIDE_MAX:
                raise
            return self._split(page, fault) > 0

    def try_again(self) -> None:
        """Deal with some of those that were set aside, each alone."""
        for id in list(self.aside)[:TRIED_AGAIN_MAX]:
            del self.aside[id]
            self._part([id])

    def _part(self, ids: Sequence[int]) -> int:
        """Deal with a part of a page; say how many were dealt with or set aside."""
        wanted = frozenset(ids)
        try:
            return self._carry_out(lambda found: [id for id in found if id in wanted])
        except FAULTS as fault:
            return self._split(ids, fault)

    def _split(self, ids: Sequence[int], fault: Exception) -> int:
        if len(ids) > 1:
            half = len(ids) // 2
            return self._part(ids[:half]) + self._part(ids[half:])
        _LOG.error("%s: task %s is set aside until the next sweep: %s", self._boundary, text_of(Key(ids[0])), fault)
        self.aside[ids[0]] = None
        return 1

    def _carry_out(self, choose: Choose) -> int:
        count = ROWS_MAX + len(self.aside)
        return self._transact(lambda passage: self._deal(passage, count, choose), self._boundary)
