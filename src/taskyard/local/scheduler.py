"""`Scheduler`: hands out the tasks of a graph in an order that respects it, to any number of threads.

Fetch a task, do it, deliver or fail it. Every call is atomic, for one task or for many: it is carried out as a whole
under one lock, or it raises and changes nothing. What a call does in which state, `rules` has from the machine; this
file carries it out and tells the dependents. It runs nothing itself.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from itertools import compress, islice
from threading import Lock

from taskyard.core.machine import Tell
from taskyard.local.dag import Dag
from taskyard.local.gate import Gate
from taskyard.local.roster import Roster
from taskyard.local.rules import ILLEGAL, RULES, TELLS, UNKNOWN, Call, Code, Rule, word
from taskyard.local.views import AvailableTasks, BlockedTasks
from taskyard.local.wiring import Node

#: A message names this many tasks at most; all of a cycle are in `SchedulerError.cycle`.
NAMES_MAX = 50
#: So many tasks that open together are remembered as a wave; for fewer, to look them up again costs as little.
WAVE_MIN = 16

_FETCH, _DELIVER = RULES.fetch, RULES.deliver
# The plain moves: a flag allows more moves and changes none of these, so every call tries them first.
_READY, _FETCHED = _FETCH.move
_, _DELIVERED = _DELIVER.move
_OPENED = RULES.opened


class SchedulerError(RuntimeError):
    """The call is illegal as things stand, and changed nothing."""

    def __init__(self, message: str, cycle: tuple[Node, ...] = ()) -> None:
        super().__init__(message)
        #: For a graph that is refused: one whole cycle, each task depending on the next and the last on the first.
        self.cycle = cycle


class Scheduler:
    """The tasks of a graph, and how far they are."""

    def __init__(self, dag: Dag, *, deepcopy: bool = True) -> None:  # noqa: ARG002
        """Take the graph as it is now: later changes to it are not seen, whatever `deepcopy` says.

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
        self._roster = Roster(self._codes)
        self._blocked: dict[int, set[int]] = {}
        #: Some tasks in a row and their numbers: a wave that is handed out comes back as it is.
        self._wave: tuple[list[Node], list[int]] = ([], [])
        self._available_tasks = AvailableTasks(wiring, self._codes, self._roster, self._lock)
        self._blocked_tasks = BlockedTasks(wiring, self._blocked)
        self.reset()

    @property
    def available_tasks(self) -> AbstractSet[Node]:
        """The tasks that can run at the same time, ready or fetched; only deliver and fail take one out."""
        return self._available_tasks

    @property
    def blocked_tasks(self) -> Mapping[Node, AbstractSet[Node]]:
        """The tasks with a failed prerequisite, each with the set of all of those."""
        return self._blocked_tasks

    @property
    def unknown_tasks(self) -> list[Node]:
        """The tasks nobody has touched that are not blocked: they are ready, wait, or are behind a blocked one."""
        with self._lock:
            return list(compress(self._nodes, map(UNKNOWN.__getitem__, self._codes)))

    @property
    def stranded_tasks(self) -> set[Node]:
        """The tasks that cannot become available before a failed one is fetched again: blocked, also through others."""
        with self._lock:
            reached = set(self._blocked)
            trail = list(reached)
        for number in trail:
            beyond = set(self._wiring.dependents(number)) - reached
            reached |= beyond
            trail.extend(beyond)
        return set(map(self._nodes.__getitem__, reached))

    def fetch_task(self, id: Node, *, fetched_ok: bool = False, failed_ok: bool = False) -> None:
        """Take a ready task; if so allowed, also one that is fetched (nothing changes) or one that failed."""
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

    def deliver_task(self, id: Node, *, nofetch_ok: bool = False, delivered_ok: bool = False) -> list[Node]:
        """End a fetched task well; if so allowed, also one that is ready, or delivered already (nothing changes).

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
                return self._tell_success(number)
            return self._carry(_DELIVER, _DELIVER.rules[bool(nofetch_ok), bool(delivered_ok)], number)
        finally:
            self._lock.release()

    def fail_task(self, id: Node, *, nofetch_ok: bool = False, is_exception: bool = False) -> None:
        """End a fetched task badly; if so allowed, also a ready one. Its dependents are blocked by it."""
        call = RULES.crash if is_exception else RULES.fail
        number = self._find(call, id)
        with self._lock:
            self._carry(call, call.rules[(bool(nofetch_ok),)], number)

    def fetch_tasks(self, ids: Iterable[Node], *, fetched_ok: bool = False, failed_ok: bool = False) -> None:
        """Fetch all of them, as if one by one in this order, or raise and fetch none."""
        numbers = self._find_all(_FETCH, ids)
        with self._lock:
            if not self._move_all(numbers, _READY, _FETCHED):
                self._carry_all(_FETCH, _FETCH.rules[bool(fetched_ok), bool(failed_ok)], numbers)

    def deliver_tasks(self, ids: Iterable[Node], *, nofetch_ok: bool = False, delivered_ok: bool = False) -> list[Node]:
        """Deliver all of them, as if one by one in this order, or raise and deliver none.

        Returns the tasks that became available by this and were not delivered in turn.
        """
        numbers = self._find_all(_DELIVER, ids)
        with self._lock:
            if self._move_all(numbers, _FETCHED, _DELIVERED):
                self._roster.struck += len(numbers)
                return self._open(self._gate.deliver_all(numbers))
            return self._carry_all(_DELIVER, _DELIVER.rules[bool(nofetch_ok), bool(delivered_ok)], numbers)

    def fail_tasks(self, ids: Iterable[Node], *, nofetch_ok: bool = False, is_exception: bool = False) -> None:
        """Fail all of them, as if one by one in this order, or raise and fail none."""
        call = RULES.crash if is_exception else RULES.fail
        numbers = self._find_all(call, ids)
        with self._lock:
            self._carry_all(call, call.rules[(bool(nofetch_ok),)], numbers)

    def reset(self) -> None:
        """Go back to how it was when it was made."""
        plan = self._wiring.plan
        with self._lock:
            self._codes[:] = bytes([RULES.unready]) * len(self._codes)
            self._blocked.clear()
            self._gate.restart()
            self._roster.restart([])
            self._open(plan.order[: plan.opened[0]])

    def _find(self, call: Call, id: Node) -> int:
        try:
            return self._number[id]
        except KeyError:
            raise _unknown(call, id) from None

    def _find_all(self, call: Call, ids: Iterable[Node]) -> list[int]:
        # A wave is handed out, fetched and delivered as it is: to compare it is cheaper than to look up its tasks.
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

    def _carry_all(self, call: Call, rule: Rule, numbers: list[int]) -> list[Node]:
        """Do one call to each of them in turn; return who became available and still is."""
        self._rehearse(call, rule, numbers)
        opened = [name for number in numbers for name in self._carry(call, rule, number)]
        return [name for name in opened if name in self._available_tasks]

    def _rehearse(self, call: Call, rule: Rule, numbers: list[int]) -> None:
        """Refuse the whole row if one of them would be refused when its turn comes."""
        codes: dict[int, Code] = {}
        left: dict[int, int] = {}
        for number in numbers:
            source = codes.get(number, self._codes[number])
            target = rule[source]
            if target == ILLEGAL:
                raise self._refusal(call, number, source)
            codes[number] = target
            if TELLS[source][target] is Tell.SUCCESS:
                for dependent in self._wiring.dependents(number):
                    left[dependent] = left.get(dependent, self._gate.left()[dependent]) - 1
                    if not left[dependent]:
                        codes[dependent] = _OPENED

    def _carry(self, call: Call, rule: Rule, number: int) -> list[Node]:
        """Do one call to one task and tell its dependents; return who became available."""
        source = self._codes[number]
        target = rule[source]
        if target == ILLEGAL:
            raise self._refusal(call, number, source)
        self._codes[number] = target
        match TELLS[source][target]:
            case Tell.SUCCESS:
                return self._tell_success(number)
            case Tell.FAILURE:
                self._tell_failure(number)
            case Tell.MEND:
                self._tell_mend(number)
        return []

    def _tell_success(self, delivered: int) -> list[Node]:
        self._roster.struck += 1
        opened = self._gate.deliver(delivered)
        return self._open(opened) if opened else []

    def _tell_failure(self, failed: int) -> None:
        self._roster.struck += 1
        for dependent in self._wiring.dependents(failed):
            self._codes[dependent] = RULES.blocked
            self._blocked.setdefault(dependent, set()).add(failed)

    def _tell_mend(self, failed: int) -> None:
        self._roster.come_back(failed)
        for dependent in set(self._wiring.dependents(failed)):
            causes = self._blocked[dependent]
            causes.remove(failed)
            if not causes:
                del self._blocked[dependent]
                self._codes[dependent] = RULES.mended

    def _open(self, numbers: list[int]) -> list[Node]:
        """Let these be fetched, and name them."""
        codes, nodes, names = self._codes, self._nodes, []
        for number in numbers:
            codes[number] = _OPENED
            names.append(nodes[number])
        self._roster.entries += numbers
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
