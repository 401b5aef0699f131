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
#: Faults listed one by one; nobody reads more, and the rest is counted.
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
#: One default for everybody, so that equal tasks run in the order of their creation; below the middle, so that
#: more can be told to step back than to push forward.
PRIORITY = 100
#: TaskCluster's limit; whoever needs more has a loop, not a rerun.
RERUNS_MAX = 999
#: The longest pause before a rerun, and the steepest growth of it.
RERUN_DELAY_MAX_MS = DAY_MS
RERUN_FACTOR_MAX = 10.0
#: What a POSIX process can end with, beside 0.
EXIT_CODE_MAX = 255
#: A lost bot is bad luck, two are suspicious, three are the task's own doing.
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
#: Swarming's limit; the length is Linux's PATH_MAX.
OUTPUTS_MAX = 4_096
PATH_MAX = 4_096
#: How long an attempt may take. A day ends what hangs and surprises nobody whose build is slow.
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
    """A time as the document gave it: a moment, or a span that counts from the submission."""

    ms: int
    fixed: bool

    def moment(self, submitted: Millis) -> Millis:
        """Say which moment this is for a graph submitted at `submitted`."""
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
    """One task of a graph; a matrix has been taken apart into one task for each combination."""

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
    """Give the SHA-256 of a task's definition in canonical JSON: the order of keys, edges and mutexes is no part of it.

    Nor is the label, or a field at its default, so a field that is added later changes no digest of before.
    """
    definition = _chosen(task)
    for name in ("requires", "mutexes"):
        if name in definition:
            definition[name] = sorted(map(_canonical, getattr(task, name)))
    return hashlib.sha256(_canonical(definition).encode()).hexdigest()


_Part = Task | Slice | Edge | Reruns | Mutex | When


def _chosen(part: _Part) -> dict[str, object]:
    """Give the fields of a task, or of a part of one, that say something."""
    values = ((name, getattr(part, name), default) for name, default in _DEFAULTS[type(part)])
    return {name: value for name, value, default in values if value != default}


def _plain(value: object) -> object:
    assert isinstance(value, _Part), f"{type(value).__name__} is no part of a task"
    return _chosen(value)


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_plain).encode
#: The fields of each part with their defaults; a field without one is always written. What a task is called, by itself
#: or in its document, is no definition.
_DEFAULTS = {
    part: tuple((name, default) for name, default in defaults(part) if name not in ("label", "node"))
    for part in (Task, Slice, Edge, Reruns, Mutex, When)
}


# The routing key of a task's messages: `<schedulerId>.<taskGraphId>.<graph.routing>.<task.routing>`.
#
# A key has four words, always; no word holds a dot, so whoever receives one can take it apart again.


#: Stands for a missing routing: a word of a key is never empty.
ABSENT = "_"


def routing_key(scheduler_id: str, graph_id: str, graph_routing: str, task_routing: str) -> str:
    """Compose the routing key of a task, or of its graph when `task_routing` is empty."""
    words = tuple(word or ABSENT for word in (scheduler_id, graph_id, graph_routing, task_routing))
    assert not any("." in word for word in words), "a word of a routing key holds a dot"
    return ".".join(words)


def room_bytes(scheduler_id: str, graph_id: str, graph_routing: str) -> int:
    """Say how long a task's routing may be so that its key still fits; below 1 not even an absent one does."""
    shortest = routing_key(scheduler_id, graph_id, graph_routing, ABSENT)
    return ROUTING_KEY_BYTES_MAX - len(shortest.encode()) + len(ABSENT)


# The budget of one document, with everything inside it.
#
# Matrices multiply, and graphs hold graphs, so a short document can ask for much work. Whoever multiplies takes it
# from the allowance first.


@dataclass(slots=True)
class Allowance:
    """How much is left; below zero it is overdrawn, and the reading stops there."""

    tasks: int = TASKS_MAX
    edges: int = EDGES_MAX
    values: int = VALUES_MAX
