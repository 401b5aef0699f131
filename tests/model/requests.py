"""Random graphs for these tests: tasks as plain values, their documents, and hypothesis strategies for both.

Every strategy has a simple first value, so that a failing example shrinks to what matters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from hypothesis import strategies as st

from taskyard.core.states import Impossible, Join, On

#: No pool but this one has a capacity, and this is it.
POOL, CAPACITY = "lab", 2
DAY_MS = 86_400_000


class ShortRepr:
    """A repr without default values, so that an example fits on a screen."""

    def __repr__(self) -> str:
        values = [(one.name, getattr(self, one.name), one.default) for one in fields(self)]  # type: ignore[arg-type]
        shown = [f"{name}={value!r}" for name, value, usual in values if value != usual]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        printer.text(repr(self))


@dataclass(frozen=True, repr=False)
class SliceSpec(ShortRepr):
    """A slice: the pool whose bots may run it, how long it waits for one, and whether it waits for the first."""

    pool: str = "default"
    expires_ms: int = DAY_MS
    patient: bool = True


@dataclass(frozen=True, repr=False)
class TaskSpec(ShortRepr):
    """A task of a submitted graph."""

    requires: tuple[tuple[str, On], ...] = ()
    join: Join = Join.ALL
    policy: Impossible = Impossible.HOLD
    slices: tuple[SliceSpec, ...] = (SliceSpec(),)
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
            task["slices"] = [_slice(one) for one in self.slices]
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


def document(tasks: Mapping[str, TaskSpec]) -> dict[str, object]:
    """A graph document."""
    return {"tasks": {label: one.document for label, one in tasks.items()}}


#: Where tasks go. A slice before the last may be left out when no bot was seen that could serve it.
SLICES = [
    (SliceSpec(),),
    (SliceSpec(POOL),),
    (SliceSpec(expires_ms=30_000),),
    (SliceSpec(POOL, 20_000, patient=False), SliceSpec()),
    (SliceSpec(POOL, 20_000), SliceSpec(expires_ms=50_000)),
    (SliceSpec(patient=False),),
]
#: Mutexes: exclusive, shared by readers, and two keys at once.
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
def task_specs(draw: st.DrawFn, known: Sequence[str]) -> TaskSpec:
    """A task that may require some of the tasks that are known."""
    edges = st.tuples(st.sampled_from(known or [""]), st.sampled_from([On.SUCCESS, On.SUCCESS, On.FAILURE, On.ALWAYS]))
    fewest, most = (draw(st.integers(0, 2)), 3) if known else (0, 0)
    requires = tuple(draw(st.lists(edges, min_size=fewest, max_size=most, unique=True)))
    noop = draw(_often(False, True)) is True
    return TaskSpec(
        requires,
        draw(st.sampled_from([Join.ALL, Join.ALL, Join.ANY])) if requires else Join.ALL,
        draw(st.sampled_from(Impossible)) if requires else Impossible.HOLD,
        (SliceSpec(),) if noop else draw(st.sampled_from([SLICES[0], SLICES[0], *SLICES])),
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
def graphs(draw: st.DrawFn, most: int = 6) -> dict[str, TaskSpec]:
    """The tasks of a new graph."""
    tasks: dict[str, TaskSpec] = {}
    for place in range(draw(st.integers(1, most))):
        tasks[f"t{place}"] = draw(task_specs(list(tasks)))
    return tasks


def _slice(one: SliceSpec) -> dict[str, object]:
    return {
        "dimensions": {"pool": one.pool},
        "expires": _span(one.expires_ms),
        "wait_for_capacity": one.patient,
    }


def _span(ms: int) -> str:
    return f"{ms // 1_000}s"
