"""A graph as it was read: whole, checked and never changed again.

`validate` is the only maker of these in earnest. Payloads are the submitter's own mappings, not copies: they are
frozen by convention, and `substitute` makes a new one where it changes anything.
"""

from collections.abc import Mapping
from types import MappingProxyType

from taskyard.core.graph.limits import EXPIRES_MS, PRIORITY, RETRIES, WEIGHT
from taskyard.core.matching import Dimensions
from taskyard.core.values import terse_value
from taskyard.core.words import Disconnect, Impossible, Join, Kind, Millis, On

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
class Graph:
    """Tasks and edges submitted together, by label, in the order of the document."""

    name: str = ""
    routing: str = ""
    tasks: Mapping[str, Task] = MappingProxyType({})
    description: str = ""
    tags: Pairs = ()
