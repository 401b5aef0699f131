"""`Scheduler`: hands out the tasks of a graph in an order that respects it, to any number of threads.

Fetch a task, do it, deliver or fail it. Every call is atomic, for one task or for many: it is carried out as a whole
under one lock, or it raises and changes nothing. `transitions` has what a call does in each state; this file
carries it out and propagates to the dependents. It runs nothing itself.
"""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import compress, islice
from threading import Lock
from typing import Any, Generic

from taskyard.core.states import Propagation
from taskyard.local.dag import Dag, Left, Node, NodeT, Wiring
from taskyard.local.transitions import AVAILABLE, ILLEGAL, PROPAGATIONS, RULES, UNKNOWN, Call, Code, Rule, word

# The available tasks: those that are ready or fetched, in the order they became so.
#
# They are kept by number. Nothing here decides: it gets the tasks that enter and the number of those that leave; the
# codes of the tasks say which ones left.


#: With fewer stale entries than this, dropping them would cost more than it saves.
_STALE_MIN = 32


class AvailableNumbers:
    """The numbers of the available tasks. A stale entry stays until a reader drops it.

    So a delivery needs no search and a walk no copy; and taking the first one again and again stays linear, because
    `tidy` skips stale entries at the front for good, and drops the others when they are the greater part.
    """

    __slots__ = ("_again", "_codes", "_first", "entries", "stale")

    def __init__(self, codes: bytearray) -> None:
        self._codes = codes
        self.restart([])

    def restart(self, entries: list[int]) -> None:
        """Start again with these."""
        self.entries = entries
        #: The place of the newest entry of each task that came back; its older entries do not count.
        self._again: dict[int, int] = {}
        self._first = 0
        self.stale = 0

    def add_back(self, number: int) -> None:
        """Add a task that was available before."""
        self._again[number] = len(self.entries)
        self.entries.append(number)

    def __len__(self) -> int:
        return len(self.entries) - self.stale

    def tidy(self) -> None:
        """Make the next walk short; the cost is amortized over the deliveries since the last call."""
        if self.stale > len(self) + _STALE_MIN:
            self.restart(list(self.walk()))
        front = range(self._first, len(self.entries))
        self._first = next(_counting(self.entries, front, self._codes, self._again), len(self.entries))

    def walk(self) -> Iterator[int]:
        """Yield the tasks that are available now, except those that leave before they are reached."""
        entries = self.entries
        places = range(self._first, len(entries))
        return map(entries.__getitem__, _counting(entries, places, self._codes, self._again))


def _counting(entries: list[int], places: range, codes: bytearray, again: Mapping[int, int]) -> Iterator[int]:
    # The walk keeps the lists with which it began: `tidy` creates new ones.
    for place in places:
        number = entries[place]
        if AVAILABLE[codes[number]] and again.get(number, place) == place:
            yield place


# Which tasks a delivery opens: those whose prerequisites are then all delivered.
#
# As long as deliveries keep the order in which the tasks opened, the plan that proved the graph free of cycles has the
# answer, and no edge is read again. The first delivery out of that order ends this: the gate counts the edges of all
# deliveries so far, and goes on counting. The answers are the same either way.


class Gate:
    """The delivered tasks of a graph, and the tasks that they open."""

    __slots__ = ("_delivered", "_first", "_left", "_links", "_open", "_opened", "_order", "_wiring")

    def __init__(self, wiring: Wiring[Any]) -> None:
        self._wiring = wiring
        self._first, self._links = wiring.first, wiring.links
        self._order, self._opened = wiring.plan.order, wiring.plan.opened
        self.restart()

    def restart(self) -> None:
        """Start again, with nothing delivered."""
        #: How much of the plan is delivered and how much of it is open, while deliveries follow it.
        self._delivered = 0
        self._open = self._opened[0]
        #: The remaining prerequisites of each task; None while deliveries follow the plan.
        self._left: Left | None = None

    def deliver(self, number: int) -> list[int]:
        """Deliver a task; return the tasks that this opens."""
        if self._left is None and self._order[self._delivered] == number:
            return self._follow_plan(self._delivered + 1)
        opened: list[int] = []
        edge = self._first[number]
        # A task without dependents opens nothing, so it need not follow the plan.
        if edge:
            # `count_down` for one task, written out: the call would cost as much as the count (`benchmarks.dag`).
            left, links = self._left or self.left(), self._links
            while edge:
                dependent = links[edge - 1]
                left[dependent] = rest = left[dependent] - 1
                if not rest:
                    opened.append(dependent)
                edge = links[edge]
        return opened

    def deliver_all(self, numbers: list[int]) -> list[int]:
        """Deliver tasks; return the tasks that this opens."""
        end = self._delivered + len(numbers)
        if self._left is None and self._order[self._delivered : end] == numbers:
            return self._follow_plan(end)
        opened: list[int] = []
        self._wiring.count_down(self.left(), numbers, opened)
        return opened

    def left(self) -> Left:
        """Count the prerequisites that each task still waits for; this leaves the plan."""
        if self._left is None:
            self._left = self._wiring.left()
            self._wiring.count_down(self._left, self._order[: self._delivered], [])
        return self._left

    def _follow_plan(self, delivered: int) -> list[int]:
        before, self._open = self._open, self._opened[delivered]
        self._delivered = delivered
        return self._order[before : self._open]


# The views of a scheduler: sets and mappings that cannot be changed and always show the present state.
#
# Nothing is copied. A view may be iterated while tasks are fetched, delivered and failed, by this thread or another; a
# task that leaves before it is reached is left out, and a task that enters meanwhile is in the next iteration.


class NodeSet(AbstractSet[NodeT]):
    """A set of nodes that compares and combines with any other set; the result is a plain one."""

    __slots__ = ()

    @classmethod
    def _from_iterable(cls, nodes: Iterable[NodeT]) -> set[NodeT]:  # type: ignore[override]
        return set(nodes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({set(self) or '{}'})"


class AvailableTasks(NodeSet[NodeT]):
    """The tasks that are ready or fetched."""

    __slots__ = ("_available", "_codes", "_lock", "_wiring")

    def __init__(self, wiring: Wiring[NodeT], codes: bytearray, numbers: AvailableNumbers, lock: Lock) -> None:
        self._wiring = wiring
        self._codes = codes
        self._available = numbers
        self._lock = lock

    def __contains__(self, id: object) -> bool:
        number = self._wiring.number.get(id)  # type: ignore[arg-type]  # any object can be looked for
        return number is not None and AVAILABLE[self._codes[number]]

    def __len__(self) -> int:
        return len(self._available)

    def __iter__(self) -> Iterator[NodeT]:
        with self._lock:
            self._available.tidy()
            return map(self._wiring.nodes.__getitem__, self._available.walk())


class FailedTasks(NodeSet[NodeT]):
    """The failed prerequisites of one task."""

    __slots__ = ("_numbers", "_wiring")

    def __init__(self, wiring: Wiring[NodeT], numbers: set[int]) -> None:
        self._wiring = wiring
        self._numbers = numbers

    def __contains__(self, id: object) -> bool:
        return self._wiring.number.get(id, -1) in self._numbers  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[NodeT]:
        return map(self._wiring.nodes.__getitem__, tuple(self._numbers))


class BlockedTasks(Mapping[NodeT, AbstractSet[NodeT]]):
    """The tasks with a failed prerequisite, each with all of those."""

    __slots__ = ("_blocked", "_wiring")

    def __init__(self, wiring: Wiring[NodeT], blocked: Mapping[int, set[int]]) -> None:
        self._wiring = wiring
        self._blocked = blocked

    def __getitem__(self, id: NodeT) -> FailedTasks[NodeT]:
        return FailedTasks(self._wiring, self._blocked[self._wiring.number[id]])

    def __contains__(self, id: object) -> bool:
        return self._wiring.number.get(id, -1) in self._blocked  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self._blocked)

    def __iter__(self) -> Iterator[NodeT]:
        return map(self._wiring.nodes.__getitem__, tuple(self._blocked))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({ {node: set(failed) for node, failed in self.items()} })"


#: A message names this many tasks at most; all of a cycle are in `SchedulerError.cycle`.
NAMES_MAX = 50
#: So many tasks that open together are cached as a wave; for fewer, a second lookup costs as little.
WAVE_MIN = 16

_FETCH, _DELIVER = RULES.fetch, RULES.deliver
# The plain moves: flags only allow more, so every call tries these first.
_READY, _FETCHED = _FETCH.move
_, _DELIVERED = _DELIVER.move
_OPENED = RULES.opened


class SchedulerError(RuntimeError):
    """The call is illegal in the present state, and changed nothing."""

    def __init__(self, message: str, cycle: tuple[Node, ...] = ()) -> None:
        super().__init__(message)
        #: For a graph that is refused: one whole cycle, each task depending on the next and the last on the first.
        self.cycle = cycle


class Scheduler(Generic[NodeT]):
    """The tasks of a graph and their states."""

    def __init__(self, dag: Dag[NodeT], *, deepcopy: bool = True) -> None:  # noqa: ARG002
        """Copy the graph as it is now: later changes to it have no effect, whatever `deepcopy` is.

        A graph with a cycle can never be finished: it is refused with a SchedulerError that has the cycle.
        """
        if not isinstance(dag, Dag):
            raise TypeError(f"a Scheduler takes a Dag, such as Dag.from_edges(edges) makes, not {type(dag).__name__}")
        self._wiring = wiring = dag.wiring
        if len(wiring.plan.order) < len(wiring.nodes):
            raise _cyclic(tuple(wiring.cycle()))
        self._lock = Lock()
        self._nodes, self._number = wiring.nodes, wiring.number
        self._codes = bytearray(len(wiring.nodes))
        self._gate = Gate(wiring)
        self._available = AvailableNumbers(self._codes)
        self._blocked: dict[int, set[int]] = {}
        #: Some tasks in a row and their numbers: a wave that is handed out comes back as it is.
        self._wave: tuple[list[NodeT], list[int]] = ([], [])
        self._available_tasks = AvailableTasks(wiring, self._codes, self._available, self._lock)
        self._blocked_tasks = BlockedTasks(wiring, self._blocked)
        self.reset()

    @property
    def available_tasks(self) -> AbstractSet[NodeT]:
        """The tasks that can run at the same time, ready or fetched; only deliver and fail take one out."""
        return self._available_tasks

    @property
    def blocked_tasks(self) -> Mapping[NodeT, AbstractSet[NodeT]]:
        """The tasks with a failed prerequisite, each with the set of all of those."""
        return self._blocked_tasks

    @property
    def unknown_tasks(self) -> list[NodeT]:
        """The untouched tasks that are not blocked: they are ready, wait, or are behind a blocked one."""
        with self._lock:
            return list(compress(self._nodes, map(UNKNOWN.__getitem__, self._codes)))

    @property
    def stranded_tasks(self) -> set[NodeT]:
        """The tasks that cannot become available before a failed one is fetched again: blocked, also through others."""
        with self._lock:
            reached = set(self._blocked)
            trail = list(reached)
        for number in trail:
            beyond = set(self._wiring.dependents(number)) - reached
            reached |= beyond
            trail.extend(beyond)
        return set(map(self._nodes.__getitem__, reached))

    def fetch_task(self, id: NodeT, *, fetched_ok: bool = False, failed_ok: bool = False) -> None:
        """Fetch a ready task; if allowed, also one that is fetched (nothing changes) or one that failed."""
        try:
            number = self._number[id]
        except KeyError:
            raise _unknown(_FETCH, id) from None
        # Not `with`: it would cost a tenth of the time of a fetch and a delivery (`benchmarks.dag`).
        self._lock.acquire()
        try:
            if self._codes[number] == _READY:
                self._codes[number] = _FETCHED
            else:
                self._carry(_FETCH, _FETCH.rules[bool(fetched_ok), bool(failed_ok)], number)
        finally:
            self._lock.release()

    def deliver_task(self, id: NodeT, *, nofetch_ok: bool = False, delivered_ok: bool = False) -> list[NodeT]:
        """Mark a fetched task as done; if allowed, also one that is ready, or delivered already (nothing changes).

        Returns the tasks that became available by this.
        """
        try:
            number = self._number[id]
        except KeyError:
            raise _unknown(_DELIVER, id) from None
        self._lock.acquire()
        try:
            if self._codes[number] == _FETCHED:
                self._codes[number] = _DELIVERED
                return self._propagate_success(number)
            return self._carry(_DELIVER, _DELIVER.rules[bool(nofetch_ok), bool(delivered_ok)], number)
        finally:
            self._lock.release()

    def fail_task(self, id: NodeT, *, nofetch_ok: bool = False, is_exception: bool = False) -> None:
        """Mark a fetched task as failed; if allowed, also a ready one. It blocks its dependents."""
        call = RULES.crash if is_exception else RULES.fail
        number = self._find(call, id)
        with self._lock:
            self._carry(call, call.rules[(bool(nofetch_ok),)], number)

    def fetch_tasks(self, ids: Iterable[NodeT], *, fetched_ok: bool = False, failed_ok: bool = False) -> None:
        """Fetch all of them, as if one by one in this order, or raise and fetch none."""
        numbers = self._find_all(_FETCH, ids)
        with self._lock:
            if not self._move_all(numbers, _READY, _FETCHED):
                self._carry_all(_FETCH, _FETCH.rules[bool(fetched_ok), bool(failed_ok)], numbers)

    def deliver_tasks(
        self, ids: Iterable[NodeT], *, nofetch_ok: bool = False, delivered_ok: bool = False
    ) -> list[NodeT]:
        """Deliver all of them, as if one by one in this order, or raise and deliver none.

        Returns the tasks that became available by this and were not delivered in turn.
        """
        numbers = self._find_all(_DELIVER, ids)
        with self._lock:
            if self._move_all(numbers, _FETCHED, _DELIVERED):
                self._available.stale += len(numbers)
                return self._open(self._gate.deliver_all(numbers))
            return self._carry_all(_DELIVER, _DELIVER.rules[bool(nofetch_ok), bool(delivered_ok)], numbers)

    def fail_tasks(self, ids: Iterable[NodeT], *, nofetch_ok: bool = False, is_exception: bool = False) -> None:
        """Fail all of them, as if one by one in this order, or raise and fail none."""
        call = RULES.crash if is_exception else RULES.fail
        numbers = self._find_all(call, ids)
        with self._lock:
            self._carry_all(call, call.rules[(bool(nofetch_ok),)], numbers)

    def reset(self) -> None:
        """Reset every task to its first state."""
        plan = self._wiring.plan
        with self._lock:
            self._codes[:] = bytes([RULES.unready]) * len(self._codes)
            self._blocked.clear()
            self._gate.restart()
            self._available.restart([])
            self._open(plan.order[: plan.opened[0]])

    def _find(self, call: Call, id: NodeT) -> int:
        try:
            return self._number[id]
        except KeyError:
            raise _unknown(call, id) from None

    def _find_all(self, call: Call, ids: Iterable[NodeT]) -> list[int]:
        # A wave is often fetched and delivered as a whole. Comparing it, not looking up its tasks, takes a third off
        # a drain in waves (`benchmarks.dag`, in waves).
        names = list(ids)
        known, numbers = self._wave
        if names != known:
            try:
                numbers = list(map(self._number.__getitem__, names))
            except KeyError as error:
                raise _unknown(call, error.args[0]) from None
            self._wave = names, numbers
        return numbers

    def _move_all(self, numbers: list[int], source: Code, target: Code) -> bool:
        """Make one plain move with all of them, or with none if one of them (or of their repeats) is elsewhere."""
        codes = self._codes
        for place, number in enumerate(numbers):
            if codes[number] != source:
                for moved in numbers[:place]:
                    codes[moved] = source
                return False
            codes[number] = target
        return True

    def _carry_all(self, call: Call, rule: Rule, numbers: list[int]) -> list[NodeT]:
        """Make one call for each of them in turn; return the tasks that became available and still are."""
        self._rehearse(call, rule, numbers)
        opened = [name for number in numbers for name in self._carry(call, rule, number)]
        return [name for name in opened if name in self._available_tasks]

    def _rehearse(self, call: Call, rule: Rule, numbers: list[int]) -> None:
        """Refuse the whole row if one of its calls would be refused."""
        codes: dict[int, Code] = {}
        left: dict[int, int] = {}
        for number in numbers:
            source = codes.get(number, self._codes[number])
            target = rule[source]
            if target == ILLEGAL:
                raise self._refusal(call, number, source)
            codes[number] = target
            if PROPAGATIONS[source][target] is Propagation.SUCCESS:
                for dependent in self._wiring.dependents(number):
                    left[dependent] = left.get(dependent, self._gate.left()[dependent]) - 1
                    if not left[dependent]:
                        codes[dependent] = _OPENED

    def _carry(self, call: Call, rule: Rule, number: int) -> list[NodeT]:
        """Make one call for one task and propagate it; return the tasks that became available."""
        source = self._codes[number]
        target = rule[source]
        if target == ILLEGAL:
            raise self._refusal(call, number, source)
        self._codes[number] = target
        match PROPAGATIONS[source][target]:
            case Propagation.SUCCESS:
                return self._propagate_success(number)
            case Propagation.FAILURE:
                self._propagate_failure(number)
            case Propagation.MEND:
                self._propagate_mend(number)
        return []

    def _propagate_success(self, delivered: int) -> list[NodeT]:
        self._available.stale += 1
        opened = self._gate.deliver(delivered)
        return self._open(opened) if opened else []

    def _propagate_failure(self, failed: int) -> None:
        self._available.stale += 1
        for dependent in self._wiring.dependents(failed):
            self._codes[dependent] = RULES.blocked
            self._blocked.setdefault(dependent, set()).add(failed)

    def _propagate_mend(self, failed: int) -> None:
        self._available.add_back(failed)
        for dependent in set(self._wiring.dependents(failed)):
            causes = self._blocked[dependent]
            causes.remove(failed)
            if not causes:
                del self._blocked[dependent]
                self._codes[dependent] = RULES.mended

    def _open(self, numbers: list[int]) -> list[NodeT]:
        """Mark these as fetched, and return them."""
        codes, nodes, names = self._codes, self._nodes, []
        for number in numbers:
            codes[number] = _OPENED
            names.append(nodes[number])
        self._available.entries += numbers
        if len(names) >= WAVE_MIN:
            self._wave = names.copy(), numbers
        return names

    def _refusal(self, call: Call, number: int, code: Code) -> SchedulerError:
        causes = [repr(self._nodes[cause]) for cause in islice(self._blocked.get(number, ()), NAMES_MAX)]
        state = f"{word(code)} by {', '.join(causes)}" if causes else word(code)
        if code == RULES.unready:
            state += " (a prerequisite of it is not delivered)"
        return SchedulerError(f"cannot {call.verb} task {self._nodes[number]!r}: it is {state}; {call.expected(code)}")


def _unknown(call: Call, id: Node) -> SchedulerError:
    return SchedulerError(f"cannot {call.verb} task {id!r}: there is no such task")


def _cyclic(cycle: tuple[Node, ...]) -> SchedulerError:
    names = [repr(node) for node in (*cycle[:NAMES_MAX], cycle[0])]
    if len(cycle) > NAMES_MAX:
        names.insert(-1, f"({len(cycle) - NAMES_MAX} more)")
    return SchedulerError(f"the graph has a cycle: {' -> '.join(names)}", cycle)
