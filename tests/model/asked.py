"""What people ask for in these tests: tasks as plain values, the documents they make, and how they are drawn.

Every choice has a plain first value, so that a failing example shrinks to the few things that matter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from hypothesis import strategies as st

from taskyard.core.states import Impossible, Join, On

#: No pool but this one has a capacity, and this is it.
POOL, CAPACITY = "lab", 2
DAY_MS = 86_400_000


class Short:
    """Says of itself only what is not as usual, so that an example fits a screen."""

    def __repr__(self) -> str:
        values = [(one.name, getattr(self, one.name), one.default) for one in fields(self)]  # type: ignore[arg-type]
        said = [f"{name}={value!r}" for name, value, usual in values if value != usual]
        return f"{type(self).__name__}({', '.join(said)})"

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        printer.text(repr(self))


@dataclass(frozen=True, repr=False)
class Way(Short):
    """A slice: the pool whose bots may run it, how long it waits for one, and whether it waits for the first."""

    pool: str = "default"
    expires_ms: int = DAY_MS
    patient: bool = True


@dataclass(frozen=True, repr=False)
class Wanted(Short):
    """A task as it is asked for."""

    requires: tuple[tuple[str, On], ...] = ()
    join: Join = Join.ALL
    policy: Impossible = Impossible.HOLD
    ways: tuple[Way, ...] = (Way(),)
    reruns: int = 0
    delay_ms: int = 0
    retries: int = 2
    deadline_ms: int | None = None
    not_before_ms: int | None = None
    mutexes: tuple[tuple[str, str | None], ...] = ()
    weight: int = 1
    priority: int = 100
    noop: bool = False

    @property
    def document(self) -> dict[str, object]:
        """The node of a graph document."""
        task: dict[str, object] = {"priority": self.priority, "retries": self.retries}
        if self.noop:
            task["payload"] = {"noop": True}
        else:
            task |= {"payload": {"command": ["true"]}, "weight": self.weight}
            task["slices"] = [_slice(way) for way in self.ways]
        task["mutexes"] = [{"key": key} | ({"party": party} if party else {}) for key, party in self.mutexes]
        for name, ms in (("deadline", self.deadline_ms), ("not_before", self.not_before_ms)):
            if ms is not None:
                task[name] = _span(ms)
        return {
            "requires": [{"task": label, "on": str(on)} for label, on in self.requires],
            "join": str(self.join),
            "on_impossible": str(self.policy),
            "reruns": {"count": self.reruns, "delay": _span(self.delay_ms), "factor": 2},
            "task": task,
        }


def document(tasks: Mapping[str, Wanted]) -> dict[str, object]:
    """A graph document."""
    return {"tasks": {label: one.document for label, one in tasks.items()}}


#: Where tasks go. A slice before the last may be left out when nobody was seen who could serve it.
WAYS = [
    (Way(),),
    (Way(POOL),),
    (Way(expires_ms=30_000),),
    (Way(POOL, 20_000, patient=False), Way()),
    (Way(POOL, 20_000), Way(expires_ms=50_000)),
    (Way(patient=False),),
]
#: Who excludes whom: alone, readers together, two keys at once.
MUTEXES: list[tuple[tuple[str, str | None], ...]] = [
    (),
    (("door", None),),
    (("book", "readers"),),
    (("book", None),),
    (("book", "readers"), ("door", None)),
]


def _often(first: object, *others: object) -> st.SearchStrategy[object]:
    return st.sampled_from([first] * (len(others) + 1) + [*others])


@st.composite
def wanted(draw: st.DrawFn, known: Sequence[str]) -> Wanted:
    """A task that may require some of the tasks that are known."""
    edges = st.tuples(st.sampled_from(known or [""]), st.sampled_from([On.SUCCESS, On.SUCCESS, On.FAILURE, On.ALWAYS]))
    fewest, most = (draw(st.integers(0, 2)), 3) if known else (0, 0)
    requires = tuple(draw(st.lists(edges, min_size=fewest, max_size=most, unique=True)))
    noop = draw(_often(False, True)) is True
    return Wanted(
        requires,
        draw(st.sampled_from([Join.ALL, Join.ALL, Join.ANY])) if requires else Join.ALL,
        draw(st.sampled_from(Impossible)) if requires else Impossible.HOLD,
        (Way(),) if noop else draw(st.sampled_from([WAYS[0], WAYS[0], *WAYS])),
        draw(st.integers(0, 2)),
        draw(st.sampled_from([0, 4_000])),
        draw(st.sampled_from([2, 0, 1])),
        draw(st.sampled_from([None, None, 40_000, None, 60_000, 120_000])),
        draw(st.sampled_from([None, None, None, None, None, 10_000])),
        draw(st.sampled_from([MUTEXES[0], MUTEXES[0], *MUTEXES])),
        draw(st.sampled_from([1, 1, 2, 3, 0])),
        draw(st.sampled_from([100, 100, 50])),
        noop,
    )


@st.composite
def graphs(draw: st.DrawFn, most: int = 6) -> dict[str, Wanted]:
    """The tasks of a new graph."""
    tasks: dict[str, Wanted] = {}
    for place in range(draw(st.integers(1, most))):
        tasks[f"t{place}"] = draw(wanted(list(tasks)))
    return tasks


def _slice(way: Way) -> dict[str, object]:
    return {
        "dimensions": {"pool": way.pool},
        "expires": _span(way.expires_ms),
        "wait_for_capacity": way.patient,
    }


def _span(ms: int) -> str:
    return f"{ms // 1_000}s"
