"""The tables of the document: a graph, its nodes, their tasks and slices, and the small objects inside these.

They only declare the fields. `references` resolves labels, `matrix` expands, `parse` builds the tasks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from types import MappingProxyType

from taskyard.core.durations import span_text
from taskyard.core.graph.errors import Faults, Path, shown
from taskyard.core.graph.model import (
    DEPTH_MAX,
    DESCRIPTION_MAX,
    EXIT_CODE_MAX,
    EXPIRES_MAX_MS,
    EXPIRES_MIN_MS,
    EXPIRES_MS,
    INTEGER_MAX,
    LIMIT_AMOUNT_MAX,
    LIMITS_MAX,
    MUTEXES_MAX,
    PRIORITY,
    PRIORITY_MAX,
    RERUN_DELAY_MAX_MS,
    RERUN_FACTOR_MAX,
    RERUNS_MAX,
    RETRIES,
    RETRIES_MAX,
    SLICES_MAX,
    TAG_KEY_MAX,
    TAG_VALUE_MAX,
    TAGS_MAX,
    VALUES_MAX,
    WEIGHT,
    WEIGHT_MAX,
    Mutex,
    Reruns,
)
from taskyard.core.graph.payload import APPROVAL, INPUT, OUTPUT, PAYLOAD, PAYLOAD_READER, SECRET
from taskyard.core.graph.plays import ANSIBLE, GIT
from taskyard.core.graph.references import EDGE, REQUIRES
from taskyard.core.graph.scalars import (
    REQUIRED,
    ROUTING,
    Field,
    Level,
    Reader,
    boolean,
    choice,
    constant,
    dimensions,
    distinct,
    integer,
    is_mark,
    list_of,
    memory_size,
    number,
    pairs_of,
    processors,
    read_name,
    record,
    shorthand,
    span,
    tags,
    text,
    when,
)
from taskyard.core.resources import CPUS_MAX, GPUS_MAX, MEMORY_MAX_MB, SLOTS_MAX
from taskyard.core.states import Disconnect, Impossible, Join


def _reruns(count: int, delay: int = 0, factor: float = 1.0, exit_codes: tuple[int, ...] = ()) -> Reruns:
    return Reruns(count, delay, factor, exit_codes)


def _reruns_count(value: object, at: Path, faults: Faults) -> Reruns | None:
    count = _COUNT.read(value, at, faults)
    return Reruns(count) if isinstance(count, int) else None


def _slices(value: object, at: Path, faults: Faults) -> object:
    """Read the slices; a faulty list becomes an empty one, so that it does not count as absent."""
    return _SLICE_LIST.read(value, at, faults) or ()


def _whole(value: object) -> object:
    return value


def _key(mutex: object) -> object:
    return mutex.key if isinstance(mutex, Mutex) else mutex


_COUNT = integer(0, RERUNS_MAX)
_TAG = (read_name(TAG_KEY_MAX), text(TAG_VALUE_MAX, empty=True), TAGS_MAX)
_DESCRIPTION = text(DESCRIPTION_MAX, empty=True)
_EXPIRES = Field(
    "expires", span(EXPIRES_MIN_MS, EXPIRES_MAX_MS), span_text(EXPIRES_MS), "How long to wait for a bot that matches."
)
_DIMENSIONS = Field("dimensions", dimensions(), (), "What a bot must have; what names no `pool` is in pool `default`.")
_WAIT = Field(
    "wait_for_capacity",
    boolean(),
    None,
    "Wait although no live bot matches; left out, true for the last slice and false for the others.",
)

_RESOURCES = (
    Field("slots", integer(1, SLOTS_MAX), 1, "How many slots of its bot it takes."),
    Field("cpus", processors(CPUS_MAX), None, "How many processors of its bot it takes; the bot's `cores`."),
    Field("memory", memory_size(MEMORY_MAX_MB), None, "How much memory of its bot it takes and may use at most."),
    Field("gpus", integer(1, GPUS_MAX), None, "How many GPUs of its bot it takes, named in `CUDA_VISIBLE_DEVICES`."),
)

RERUNS = Level(
    "a reruns object",
    Field("count", _COUNT, REQUIRED, "How often."),
    Field("delay", span(0, RERUN_DELAY_MAX_MS), "0s", "The pause before the first rerun."),
    Field("factor", number(1.0, RERUN_FACTOR_MAX), 1.0, "What the pause is multiplied with each time."),
    Field(
        "exit_codes",
        distinct(list_of(integer(1, EXIT_CODE_MAX), 1, EXIT_CODE_MAX), _whole, "exit code"),
        (),
        "Rerun only after these; left out, after any.",
    ),
)

MUTEX = Level(
    "a mutex",
    Field("key", read_name(), REQUIRED, "What is exclusive."),
    Field("party", read_name(), None, "Holders that name the same party share it; left out, it is exclusive."),
)

SLICE = Level(
    "a slice",
    _DIMENSIONS,
    _EXPIRES,
    _WAIT,
    *_RESOURCES,
    Field("payload", PAYLOAD_READER, None, "Laid over the task's payload, field by field."),
)
_SLICE_LIST = list_of(Reader(SLICE.takes, SLICE.read), 1, SLICES_MAX)

TASK = Level(
    "a task",
    Field("routing", ROUTING, "", "The last word of the routing key of the task's messages."),
    _DIMENSIONS,
    _EXPIRES,
    _WAIT,
    *_RESOURCES,
    Field(
        "slices", Reader(_SLICE_LIST.takes, _slices), None, "Ways to run it, tried in order, instead of `dimensions`."
    ),
    Field("priority", integer(0, PRIORITY_MAX), PRIORITY, "Who goes first; the lower number does."),
    Field("deadline", when(), None, "When it has to be over: so long after the submission, or a moment."),
    Field("not_before", when(), None, "When it may start at the earliest."),
    Field("retries", integer(0, RETRIES_MAX), RETRIES, "How often it is tried again because its bot was lost."),
    Field("idempotent", boolean(), False, "A result of the same work may be reused."),
    Field("weight", integer(0, WEIGHT_MAX), WEIGHT, "Its share of its pool's capacity."),
    Field(
        "mutexes",
        distinct(list_of(record(MUTEX, Mutex), 0, MUTEXES_MAX), _key, "key"),
        (),
        "What it must not run together with.",
    ),
    Field("limits", pairs_of(read_name(), integer(1, LIMIT_AMOUNT_MAX), LIMITS_MAX), (), "Its share of named limits."),
    Field("disconnect", choice(Disconnect), "strict", "What a bot does with it while the server cannot be reached."),
    Field("tags", tags(*_TAG), (), "Keys and values to find it by."),
    Field("description", _DESCRIPTION, "", "For people."),
    Field("payload", PAYLOAD_READER, None, "What it runs."),
    inner=("payload", PAYLOAD),
)

NODE = Level(
    "a node",
    Field("requires", REQUIRES, (), "What has to end before it may run."),
    Field(
        "reruns",
        shorthand(Reader(_COUNT.takes, _reruns_count), int, record(RERUNS, _reruns)),
        0,
        "How often it is tried again because it failed.",
    ),
    Field("join", choice(Join), "all", "Whether all edges must be met or any."),
    Field("on_impossible", choice(Impossible), "hold", "What becomes of it when its edges can no longer be met."),
    Field("matrix", constant(dict, "an object of axes, each with a list of values"), None, "One task per combination."),
    Field("task", constant(dict, TASK.takes), REQUIRED, "The task itself."),
    inner=("task", TASK),
)

GRAPH = Level(
    "a graph",
    Field("name", read_name(), None, "What people call it."),
    Field("description", _DESCRIPTION, "", "For people."),
    Field("routing", ROUTING, "", "The third word of the routing key of all its messages."),
    Field("tags", pairs_of(*_TAG), (), "Keys and values to find it by."),
    Field("tasks", constant(dict, "an object of nodes by label"), REQUIRED, "The nodes by label."),
)

#: Every field of the document by level, for the reference.
FIELDS: Mapping[str, tuple[Field, ...]] = MappingProxyType(
    {
        "graph": GRAPH.fields,
        "node": NODE.fields,
        "requires": EDGE.fields,
        "reruns": RERUNS.fields,
        "task": TASK.fields,
        "slice": SLICE.fields,
        "mutex": MUTEX.fields,
        "payload": PAYLOAD.fields,
        "input": INPUT.fields,
        "output": OUTPUT.fields,
        "ansible": ANSIBLE.fields,
        "git": GIT.fields,
        "approval": APPROVAL.fields,
        "secret": SECRET.fields,
    }
)


# The survey: a first check of a whole document, before anything is read from it.
#
# A document that passes is JSON-like, of bounded depth and size, and its texts contain no NUL and no lone surrogate. So
# the readers that follow may recurse and need not check this again.


@dataclass(frozen=True, slots=True)
class Survey:
    """The result of the survey: whether the document can be read, its size, and which tasks contain marks."""

    readable: bool
    values: int
    marked: frozenset[str]


def survey(document: object, faults: Faults) -> Survey:
    """Visit every value of `document` once and note those that are not plain."""
    look = _Look(faults)
    if isinstance(document, dict | list):
        look.over(document)
    else:
        look.at_scalar(document, ())
    return Survey(look.readable, look.values, frozenset(look.marked))


class _Look:
    """The state of one survey; `path` leads to the container at hand, and its length bounds the recursion.

    Every value of a large document passes here, so paths are only built for faults.
    """

    __slots__ = ("faults", "marked", "path", "readable", "values")

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.readable = True
        self.values = 0
        self.marked: set[str] = set()
        self.path: list[str | int] = []

    def over(self, container: dict[str, object] | list[object]) -> None:
        """Look at a container and all that is inside it."""
        for step, item in self.entries(container):
            if type(item) is str:
                if "\0" in item or not item.isascii():
                    self.at_text(item, (*self.path, step))
            elif type(item) is dict or type(item) is list:
                self.path.append(step)
                self.over(item)
                self.path.pop()
            elif item is not None and type(item) is not bool:
                self.at_scalar(item, (*self.path, step))

    def entries(self, container: dict[str, object] | list[object]) -> Iterable[tuple[str | int, object]]:
        """Return what is directly inside a container, unless it is too much."""
        self.values += len(container)
        if self.values > VALUES_MAX:
            self.refuse((), f"holds more than {VALUES_MAX} values; split it")
        elif len(self.path) >= DEPTH_MAX:
            self.refuse(tuple(self.path), f"is nested too deep; at most {DEPTH_MAX} levels")
        if not self.readable:
            return ()
        if type(container) is list:
            return () if _is_plain(container) else enumerate(container)
        return self.items(container)  # type: ignore[arg-type]

    def items(self, mapping: dict[str, object]) -> Iterable[tuple[str, object]]:
        """Return the items of a mapping whose keys are texts; note whether it is a mark."""
        if len(mapping) == 1 and is_mark(mapping) and len(self.path) > 1:
            self.marked.add(str(self.path[1]))
        try:
            keys = "".join(mapping)
        except TypeError:
            odd = next(key for key in mapping if type(key) is not str)
            self.refuse(tuple(self.path), f"has the key {shown(odd)}, which is not a string; quote it")
            return ()
        if "\0" in keys or not keys.isascii():
            for key in mapping:
                self.at_text(key, (*self.path, key))
        return mapping.items()

    def at_scalar(self, value: object, at: Path) -> None:
        if type(value) is str:
            self.at_text(value, at)
        elif type(value) is int:
            if abs(value) > INTEGER_MAX:
                self.faults.add(at, "is an integer beyond 2**53; write it as a string")
        elif type(value) is float:
            if not isfinite(value):
                self.faults.add(at, f"is {value}, which JSON cannot carry; write it as a string")
        elif value is not None and type(value) is not bool:
            self.refuse(at, f"is not a plain value ({type(value).__name__}); write it as a string")

    def at_text(self, text: str, at: Path) -> None:
        if "\0" in text:
            self.faults.add(at, "holds a NUL character; remove it")
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            self.faults.add(at, "holds a lone surrogate, which is not a character; remove it")

    def refuse(self, at: Path, message: str) -> None:
        """Note a fault after which reading stops."""
        self.faults.add(at, message)
        self.readable = False


def _is_plain(items: list[object]) -> bool:
    """Whether a list has only texts without any possible fault, as most lists do."""
    try:
        text = "".join(items)  # type: ignore[arg-type]
    except TypeError:
        return False
    return text.isascii() and "\0" not in text
