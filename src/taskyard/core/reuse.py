"""Whether an idempotent task runs, takes over what an equal task did, or waits for one that is under way.

Two tasks are equal if they have the same key: a hash of everything that the outcome of a slice may depend on. A task id
in it stands for the task that really ran, so that a graph whose first task was reused gives its next task the same key
again. Priority, tags, deadlines and reruns say nothing about the outcome and are not in it. The pool always is, and the
submitter is unless the pool says otherwise: results never leave a pool, and results of other submitters are not used.

A key has one *leader* at most: the task that runs while equal ones wait for its end. Only the result of a task that
really ran is reused, never that of a task that reused one itself: else a chain of them would outlive any window.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum, unique
from typing import Final

from taskyard.core import ids
from taskyard.core.matching import POOL, Dimensions
from taskyard.core.states import ACTIVE, Millis, Reason, State, TaskId
from taskyard.core.structs import canonical_text, value

#: A week, as in Swarming: long enough for a release branch, short enough that the world has not changed.
REUSE_WINDOW_MS: Final = 7 * 86_400_000
#: After a year, what a task depends on outside of Taskyard has surely changed.
REUSE_WINDOW_MAX_MS: Final = 366 * 86_400_000
#: How many task ids in one slice are replaced by those of the tasks that really ran. With more, it is never equal.
IDS_MAX: Final = 100
#: Why a pending task is kept apart from admission: an equal one is under way, or it was not looked at because it may
#: not start yet.
APART: Final = frozenset({Reason.DUPLICATE_OF, Reason.NOT_BEFORE})
#: Part of every key. It changes when the content of keys changes, so that no old key matches by mistake.
_FORMAT: Final = "taskyard reuse 1"
#: A slice with input files depends on those of its prerequisites.
_HAS_INPUTS: Final = '"inputs":'
_HASH_DIGITS: Final = 64
_ID: Final = re.compile(rf"(?<![0-9a-f])[0-7][0-9a-f]{{{ids.KEY_DIGITS - 2}}}{ids.VERSION:x}(?![0-9a-f])")


@value
class ReusePolicy:
    """What a pool allows."""

    window_ms: int = REUSE_WINDOW_MS  # 0: nothing is reused
    shared: bool = False  # results are reused across submitters


@value
class Received:
    """What a slice receives beside its definition, each part sorted; nothing here is a secret."""

    results: tuple[tuple[str, str], ...] = ()  # of its prerequisites: label, digest
    inputs: tuple[str, ...] = ()  # digests of its input files
    secrets: tuple[str, ...] = ()  # keyed hashes of its secrets and their versions


@value
class SliceText:
    """A slice as text, for its key."""

    pool: str
    work: str  # kind, dimensions and payload as canonical JSON
    named: tuple[str, ...]  # the task ids in it

    @property
    def has_inputs(self) -> bool:
        """Whether it may receive files."""
        return _HAS_INPUTS in self.work


@value
class Result:
    """The result of an idempotent task that has ended."""

    task: TaskId
    digest: str  # of everything that makes two tasks equal
    state: State
    finished_ms: Millis
    reused: bool = False  # it was itself taken from another task


@value
class KeyState:
    """What is known about a key: the task that leads it, and the newest result."""

    leader: int | None = None
    newest: Result | None = None


@unique
class Course(StrEnum):
    """What happens to a slice that is current."""

    RUN = "run"  # it runs, and leads its key
    REUSE = "reuse"  # it takes over a result
    FOLLOW = "follow"  # it waits for the leader


@value
class Ruling:
    """The slice with which a task goes on, and what happens to it."""

    index: int
    course: Course


def slice_text(kind: str, dimensions: Dimensions, payload: object) -> SliceText:
    """Write a slice as text."""
    pool = next(("|".join(values) for name, values in dimensions if name == POOL), "")
    work = canonical_text((kind, dimensions, payload))
    return SliceText(pool, work, tuple(dict.fromkeys(_ID.findall(work))))


def key(text: SliceText, submitter: str | None, received: Received, originals: Mapping[str, str]) -> str:
    """Give the key of a slice; `originals` has the task that really ran in place of each id that it names.

    No submitter stands for all of them, in a pool that shares results.
    """
    work = (
        _ID.sub(lambda found: originals.get(found[0], found[0]), text.work) if text.named and originals else text.work
    )
    return received_key(_hash(_FORMAT, text.pool, submitter, work), received)


def received_key(early: str, received: Received) -> str:
    """Give the key of a slice by the one that it has if it receives nothing.

    It begins with that one, so that it is written where that is read, and the definition is not read again.
    """
    if not (received.results or received.inputs or received.secrets):
        return early
    return early + _hash(received.results, received.inputs, received.secrets)


def is_early(key: str) -> bool:
    """Tell whether this is the key of a slice that receives nothing."""
    return len(key) == _HASH_DIGITS


def _hash(*parts: object) -> str:
    return hashlib.sha256(canonical_text(parts).encode()).hexdigest()


def early_key(text: SliceText, submitter: str, has_prerequisites: bool) -> str | None:
    """Give the key that a slice has if it receives nothing; None if it depends on what other tasks do."""
    if text.named or (has_prerequisites and text.has_inputs):
        return None
    return key(text, submitter, Received(), {})


def waits_apart(state: State, reason: str) -> bool:
    """Tell whether a task is kept apart from admission."""
    return state is State.PENDING and reason in APART


def follows(state: State, reason: str) -> bool:
    """Tell whether a task waits for the end of an equal one."""
    return state is State.PENDING and reason == Reason.DUPLICATE_OF


def leads(state: State, reason: str) -> bool:
    """Tell whether a task to which a key belongs is under way, so that equal ones wait for it.

    The key may be reserved for a task that waits for its prerequisites, or that may not start yet.
    """
    return state in ACTIVE and not waits_apart(state, reason)


def course(known: KeyState, task: int, key: str, now: Millis, policy: ReusePolicy) -> Course:
    """Decide what happens to a task whose current slice has this key."""
    if known.newest is not None and reusable((known.newest,), key, now, policy.window_ms) is not None:
        return Course.REUSE
    return Course.RUN if known.leader is None or known.leader == task else Course.FOLLOW


def choose(courses: Sequence[Course], first: int, serves: Sequence[bool]) -> Ruling | None:
    """Choose the slice with which a task goes on, from its current one on; None if no slice can go on.

    `courses` are those of the slices from `first` on, and `serves` says for each slice of the task whether a bot could
    serve it or it waits for one. A result that is known or under way needs no bot.
    """
    for index, one in enumerate(courses, first):
        if one is not Course.RUN or serves[index]:
            return Ruling(index, one)
    return None


def reusable(results: Iterable[Result], digest: str, now: Millis, window_ms: int = REUSE_WINDOW_MS) -> Result | None:
    """Find the result that an idempotent task may take: the newest that is equal, successful, original and young.

    Age counts from the finish. A reused result is never reused itself, and a window of 0 forbids.
    """
    good = [one for one in results if one.digest == digest and one.state is State.SUCCESSFUL and not one.reused]
    young = [one for one in good if now - one.finished_ms < window_ms]
    return min(young, key=lambda one: (-one.finished_ms, one.task), default=None)
