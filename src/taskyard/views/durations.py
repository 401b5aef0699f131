"""How long tasks take: what those of the same label took in older graphs of the same name.

What is looked at is bounded: so many graphs, so many lives of each label, so many labels in all; the newest count. A
graph without a name has no past. Nothing here writes.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Final

from taskyard.core.critical_path import typical_ms
from taskyard.core.machine import FINAL
from taskyard.store.connection import Txn

#: How many older graphs are looked at for how long tasks take.
GRAPHS_MAX: Final = 20
#: How many lives of a label are enough to know.
LIVES_MAX: Final = 10
#: How many labels are looked up at once.
PAGE_MAX: Final = 500
#: How many labels are looked up in all: some seconds for the largest graphs.
LOOKED_MAX: Final = 200_000


def typical(txn: Txn, graph: int, name: str, labels: Sequence[str], pools: frozenset[str] | None) -> dict[str, int]:
    """Say how long tasks take, by label, as far as graphs in `pools` tell; None stands for all pools."""
    took: dict[str, list[int]] = defaultdict(list)
    left = LOOKED_MAX
    for older in _readable(txn, txn.times.called(name, graph, GRAPHS_MAX), pools):
        wanted = [label for label in labels if len(took[label]) < LIVES_MAX][:left]
        left -= len(wanted)
        for start in range(0, len(wanted), PAGE_MAX):
            # Only who ended for good, which is well, tells how long it takes.
            for label, ms in txn.times.taken(older, wanted[start : start + PAGE_MAX], FINAL):
                took[label].append(ms)
    found = {label: typical_ms(past) for label, past in took.items()}
    return {label: ms for label, ms in found.items() if ms is not None}


def _readable(txn: Txn, graphs: Collection[int], pools: frozenset[str] | None) -> list[int]:
    """Leave out the graphs of pools that somebody may not look into."""
    if pools is None:
        return list(graphs)
    known = txn.access.pools_of(list(graphs))
    return [one for one in graphs if not pools.isdisjoint(known[one])]
