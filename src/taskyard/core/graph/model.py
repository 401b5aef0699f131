"""The definition of a graph: validated, immutable, with the limits of each of its parts.

`validate` makes these. Payloads are the submitter's own mappings, not copies: they are
frozen by convention, and `substitute` makes a new one where it changes anything.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from taskyard.core.durations import DAY_MS, HOUR_MS, SECOND_MS
from taskyard.core.matching import Dimensions
from taskyard.core.states import Disconnect, Impossible, Join, Kind, Millis, On
from taskyard.core.structs import defaults, terse_value

# The limits of each part of a document, and the defaults of its fields.
#
# Everything that can be submitted has a maximum here, with its reason. Where a limit of Swarming or TaskCluster still
# fits, it is kept.


# The document as a whole.

#: The largest that the benchmarks submit; larger work is better split into graphs.
TASKS_MAX = 1_000_000
#: Two and a half edges for each task of the largest graph. It stops two matrices from multiplying without end.
EDGES_MAX = 2_500_000
#: Values looked at in one document, repeats through aliases and matrices included: ten for each task of the
#: largest graph.
VALUES_MAX = 10_000_000
#: Lists and objects inside each other. Far above any real document, far below Python's recursion limit.
DEPTH_MAX = 64
#: Graphs inside graphs. Workflows of workflows are rare beyond two or three.
NESTING_MAX = 8
#: Faults listed one by one; the rest is counted.
FAULTS_MAX = 100
#: The largest integer that every JSON reader keeps exactly.
INTEGER_MAX = 2**53

# Names and texts.

#: TaskCluster's limit for a label. Names that people choose (mutexes, secrets, parties) share it.
NAME_MAX = 255
#: TaskCluster's limit for a description.
DESCRIPTION_MAX = 32_768
#: The limit of the task-graph document: a routing is one short word of a routing key.
ROUTING_MAX = 10
#: TaskCluster's limit for a whole routing key; AMQP itself stops at 255 bytes.
ROUTING_KEY_BYTES_MAX = 128
#: Swarming's limits for tags (key, colon and value fit its 321 characters).
TAGS_MAX = 256
TAG_KEY_MAX = 64
TAG_VALUE_MAX = 256

# When a task may run.

#: Swarming's range; a lower number goes first.
PRIORITY_MAX = 255
#: One default for all, so that equal tasks run in the order of their creation; below the middle, so that there are more
#: lower priorities than higher ones.
PRIORITY = 100
#: A priority below the first needs the right `admin` in the pool, one below the second the right `urgent`: those who
#: share a pool do not overtake each other unasked.
ADMIN_PRIORITIES = 10
URGENT_PRIORITIES = 20
#: TaskCluster's limit; more would be a loop, not a rerun.
RERUNS_MAX = 999
#: The longest pause before a rerun, and the steepest growth of it.
RERUN_DELAY_MAX_MS = DAY_MS
RERUN_FACTOR_MAX = 10.0
#: What a POSIX process can end with, beside 0.
EXIT_CODE_MAX = 255
#: After three lost bots, the task is probably the cause.
RETRIES = 2
RETRIES_MAX = 100
#: Weights are shares of a pool's capacity; this leaves room for capacities counted in megabytes.
WEIGHT = 1
WEIGHT_MAX = 1_000_000
#: AWX's busiest task holds three keys. Each mutex of a task is looked at in every admission.
MUTEXES_MAX = 16
#: Different licences or quotas that one task may use, and how much of one.
LIMITS_MAX = 16
LIMIT_AMOUNT_MAX = 1_000_000
#: Deadlines and starts lie at most this far ahead; a longer wait belongs to a schedule.
AHEAD_MAX_MS = 366 * DAY_MS

# Where a task may run: all but the shortest expiry are Swarming's figures.

SLICES_MAX = 8
#: How long a slice waits for a bot.
EXPIRES_MS = DAY_MS
EXPIRES_MIN_MS = SECOND_MS
EXPIRES_MAX_MS = 7 * DAY_MS
DIMENSIONS_MAX = 32
DIMENSION_KEY_MAX = 64
DIMENSION_VALUE_MAX = 256
DIMENSION_VALUES_MAX = 16

# What a task runs.

#: More belongs in a file or on standard input.
COMMAND_MAX = 1_024
#: Linux refuses a longer single argument or environment entry (MAX_ARG_STRLEN).
ARGUMENT_MAX = 131_071
#: A script is text that people read; programs belong in files.
SCRIPT_MAX = 262_144
ENV_MAX = 128
ENV_NAME_MAX = 64
ENV_VALUE_MAX = 32_768
SECRETS_MAX = 64
#: A task needs the caches of a few tools. The keys of its caches are on its row, which is written often.
CACHES_MAX = 16
CACHE_NAME_MAX = 64
#: Swarming's limit for secret bytes; a key or a certificate fits several times. Named secrets share it.
SECRET_BYTES_MAX = 20 * 1024
#: Shorter text occurs in output by chance, so it cannot be masked there.
SECRET_BYTES_MIN = 8
#: Swarming's limit; the length is Linux's PATH_MAX.
OUTPUTS_MAX = 4_096
PATH_MAX = 4_096
#: Trees and outputs of prerequisites that one task takes.
INPUTS_MAX = 64
#: The longest media type of an output, as RFC 6838 limits both of its parts.
MEDIA_TYPE_MAX = 255
#: How long an attempt may take. A day ends an attempt that hangs, and is enough for slow builds.
TIMEOUT_MS = DAY_MS
TIMEOUT_MIN_MS = SECOND_MS
TIMEOUT_MAX_MS = 7 * DAY_MS
#: How long a process may take to end itself before it is killed.
GRACE_MS = 30 * SECOND_MS
GRACE_MAX_MS = HOUR_MS
#: Ansible's own tags, its widest fan-out that still makes sense on one bot, and its most verbose level.
PLAY_TAGS_MAX = 64
FORKS_MAX = 500
VERBOSITY_MAX = 5
#: Prerequisites whose results are variables of a play, and vault ids of one play.
PLAY_LABELS_MAX = 64
VAULTS_MAX = 16
#: File systems allow no longer name of a branch.
REF_MAX = 255

# A matrix.

#: Combinations of one task, counted before any is excluded.
MATRIX_MAX = 256
AXES_MAX = 8
AXIS_NAME_MAX = 64


#: What a task runs: JSON-like, keyed by the fields of `FIELDS["payload"]`.
Payload = Mapping[str, object]
Pairs = tuple[tuple[str, str], ...]


@terse_value
class Edge:
    """What a task requires: a prerequisite's label and the end that meets the edge."""

    task: str
    on: On = On.SUCCESS


@terse_value
class Reruns:
    """How often a task that failed is tried again, after what pause, and for which exit codes (none: for any)."""

    count: int = 0
    delay_ms: int = 0
    factor: float = 1.0
    exit_codes: tuple[int, ...] = ()


@terse_value
class Mutex:
    """An exclusion key and the party it may be shared with; no party means alone."""

    key: str
    party: str | None = None


@terse_value
class When:
    """A time as the document gave it: absolute, or a duration from the submission."""

    ms: int
    fixed: bool

    def moment(self, submitted: Millis) -> Millis:
        """Return the time for a graph submitted at `submitted`."""
        return Millis(self.ms if self.fixed else submitted + self.ms)


@terse_value
class Slice:
    """One way to run a task: what a bot must have, how long to wait for it, and what it then runs."""

    dimensions: Dimensions
    payload: Payload
    kind: Kind
    expires_ms: int = EXPIRES_MS
    wait_for_capacity: bool = True


@terse_value
class Task:
    """One task of a graph; a matrix has become one task for each combination."""

    label: str
    slices: tuple[Slice, ...]
    requires: tuple[Edge, ...] = ()
    join: Join = Join.ALL
    on_impossible: Impossible = Impossible.HOLD
    reruns: Reruns = Reruns()
    routing: str = ""
    priority: int = PRIORITY
    deadline: When | None = None
    not_before: When | None = None
    retries: int = RETRIES
    idempotent: bool = False
    weight: int = WEIGHT
    mutexes: tuple[Mutex, ...] = ()
    limits: tuple[tuple[str, int], ...] = ()
    disconnect: Disconnect = Disconnect.STRICT
    tags: Pairs = ()
    description: str = ""
    node: str = ""  # the label in the document, where a matrix made several tasks of it


@terse_value
class GraphDefinition:
    """Tasks and edges submitted together, by label, in the order of the document."""

    name: str = ""
    routing: str = ""
    tasks: Mapping[str, Task] = MappingProxyType({})
    description: str = ""
    tags: Pairs = ()


# Adding tasks to a graph that exists.
#
# A new task may require old ones; nothing makes an old one require a new one, so an extension cannot close a cycle
# through them. A label that exists with the same definition is an echo, with another one a fault.


@dataclass(frozen=True, slots=True)
class Existing:
    """The graph that is extended: the digest of each task's definition by label, and the graph's routing.

    A graph without tasks is finished and takes no extension, so no definitions mean a new graph.
    """

    definitions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    routing: str = ""


NOTHING = Existing()


def digest(task: Task) -> str:
    """Return the SHA-256 of a task's definition in canonical JSON, whatever the order of keys, edges and mutexes.

    The label and fields with their defaults are left out, so a field that is added later changes no existing digest.
    """
    definition = _chosen(task)
    for name in ("requires", "mutexes"):
        if name in definition:
            definition[name] = sorted(map(_canonical, getattr(task, name)))
    return hashlib.sha256(_canonical(definition).encode()).hexdigest()


_Part = Task | Slice | Edge | Reruns | Mutex | When


def _chosen(part: _Part) -> dict[str, object]:
    """Return the fields of a task, or of a part of one, that differ from their defaults."""
    values = ((name, getattr(part, name), default) for name, default in _DEFAULTS[type(part)])
    return {name: value for name, value, default in values if value != default}


def _plain(value: object) -> object:
    assert isinstance(value, _Part), f"{type(value).__name__} is no part of a task"
    return _chosen(value)


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_plain).encode
#: The fields of each part with their defaults; a field without one is always written. The name of a task is not part
#: of its definition.
_DEFAULTS = {
    part: tuple((name, default) for name, default in defaults(part) if name not in ("label", "node"))
    for part in (Task, Slice, Edge, Reruns, Mutex, When)
}


# The routing key of a task's messages: `<schedulerId>.<taskGraphId>.<graph.routing>.<task.routing>`.
#
# A key always has four words without dots, so a receiver can split it.


#: Stands for a missing routing: a word of a key is never empty.
ABSENT = "_"


def routing_key(scheduler_id: str, graph_id: str, graph_routing: str, task_routing: str) -> str:
    """Compose the routing key of a task, or of its graph when `task_routing` is empty."""
    words = tuple(word or ABSENT for word in (scheduler_id, graph_id, graph_routing, task_routing))
    assert not any("." in word for word in words), "a word of a routing key holds a dot"
    return ".".join(words)


def room_bytes(scheduler_id: str, graph_id: str, graph_routing: str) -> int:
    """Return the longest routing of a task whose key still fits; below 1 even an empty one does not."""
    shortest = routing_key(scheduler_id, graph_id, graph_routing, ABSENT)
    return ROUTING_KEY_BYTES_MAX - len(shortest.encode()) + len(ABSENT)


# The budget of one document, with everything inside it.
#
# Matrices multiply, and graphs contain graphs, so a short document can cause much work. Code that multiplies charges
# the allowance first.


@dataclass(slots=True)
class Allowance:
    """What is left of the budget; below zero, reading stops."""

    tasks: int = TASKS_MAX
    edges: int = EDGES_MAX
    values: int = VALUES_MAX
