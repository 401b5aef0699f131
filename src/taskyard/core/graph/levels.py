"""The tables of the document: a graph, its nodes, their tasks and slices, and the small objects inside these.

They only say what may stand where. Labels, matrices and how a task is put together are other files' matters.
"""

from collections.abc import Mapping
from types import MappingProxyType

from taskyard.core.graph.dimensions import dimensions
from taskyard.core.graph.document import Mutex, Reruns
from taskyard.core.graph.edges import EDGE, REQUIRES
from taskyard.core.graph.faults import Faults, Path
from taskyard.core.graph.fields import REQUIRED, Field, Level, Reader, record
from taskyard.core.graph.limits import (
    DESCRIPTION_MAX,
    EXIT_CODE_MAX,
    EXPIRES_MAX_MS,
    EXPIRES_MIN_MS,
    EXPIRES_MS,
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
    WEIGHT,
    WEIGHT_MAX,
)
from taskyard.core.graph.payload import ANSIBLE, APPROVAL, PAYLOAD, PAYLOAD_READER
from taskyard.core.graph.readers import (
    ROUTING,
    boolean,
    choice,
    constant,
    distinct,
    integer,
    list_of,
    name,
    number,
    pairs_of,
    shorthand,
    tags,
    text,
)
from taskyard.core.graph.times import span, span_text, when
from taskyard.core.words import Disconnect, Impossible, Join


def _reruns(count: int, delay: int = 0, factor: float = 1.0, exit_codes: tuple[int, ...] = ()) -> Reruns:
    return Reruns(count, delay, factor, exit_codes)


def _reruns_count(value: object, at: Path, faults: Faults) -> Reruns | None:
    count = _COUNT.read(value, at, faults)
    return Reruns(count) if isinstance(count, int) else None


def _slices(value: object, at: Path, faults: Faults) -> object:
    """Read the slices; a faulty list is an empty one, so that nobody takes it for absent."""
    return _SLICE_LIST.read(value, at, faults) or ()


def _whole(value: object) -> object:
    return value


def _key(mutex: object) -> object:
    return mutex.key if isinstance(mutex, Mutex) else mutex


_COUNT = integer(0, RERUNS_MAX)
_TAG = (name(TAG_KEY_MAX), text(TAG_VALUE_MAX, empty=True), TAGS_MAX)
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
    Field("key", name(), REQUIRED, "What is exclusive."),
    Field("party", name(), None, "Who may share it: holders that name the same party; left out, nobody."),
)

SLICE = Level(
    "a slice",
    _DIMENSIONS,
    _EXPIRES,
    _WAIT,
    Field("payload", PAYLOAD_READER, None, "Laid over the task's payload, field by field."),
)
_SLICE_LIST = list_of(Reader(SLICE.takes, SLICE.read), 1, SLICES_MAX)

TASK = Level(
    "a task",
    Field("routing", ROUTING, "", "The last word of the routing key of the task's messages."),
    _DIMENSIONS,
    _EXPIRES,
    _WAIT,
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
    Field("limits", pairs_of(name(), integer(1, LIMIT_AMOUNT_MAX), LIMITS_MAX), (), "Its share of named limits."),
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
    Field("name", name(), None, "What people call it."),
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
        "ansible": ANSIBLE.fields,
        "approval": APPROVAL.fields,
    }
)
