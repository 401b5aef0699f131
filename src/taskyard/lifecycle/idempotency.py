"""Idempotency keys: a command that is repeated with the same key gets the first answer, and is not carried out twice.

Another command with the same key is refused. A refusal is an answer, too; `NeedsSearch` is not.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypedDict, TypeVar

import msgspec

from taskyard.core.graph.model import Task
from taskyard.core.graph.parse import secret_pools, urgent_pools
from taskyard.core.ids import Key, text_of
from taskyard.lifecycle.commands import BulkOutcome, Code, Done, NeedsSearch, Refusal
from taskyard.lifecycle.submit import Extension, GraphChanged, NewGraph, Submitted, extend, submit
from taskyard.lifecycle.transaction import Transaction
from taskyard.store.connection import Repo

#: What can be stored as an answer.
Answer: TypeAlias = Done | Refusal | BulkOutcome


class Keyed(Protocol):
    """A command that may have an idempotency key."""

    @property
    def key(self) -> str:
        """The idempotency key; empty if there is none."""


Command = TypeVar("Command", bound=Keyed)
Change = TypeVar("Change")
#: Stored in place of an answer that is computed again for each repeat.
_CHANGED: Final = BulkOutcome(0, 0)

_TYPES: Final[dict[str, type[Answer]]] = {one.__name__: one for one in (Done, Refusal, BulkOutcome)}


def carry_out_keyed(
    transaction: Transaction,
    commands: Sequence[Command],
    carry_out: Callable[[Transaction, Sequence[Command]], Sequence[Answer | NeedsSearch]],
) -> list[Answer | NeedsSearch]:
    """Carry out commands, each key once; a repeat gets the first answer."""
    known = transaction.repo.events.answers({one.key for one in commands if one.key})
    asked = {key: digest for key, (digest, _) in known.items()}
    new = []
    for place, one in enumerate(commands):
        if not one.key or one.key not in asked:
            new.append(place)
            asked[one.key] = _digest(one)
    outcomes = dict(zip(new, carry_out(transaction, [commands[place] for place in new]), strict=True))
    first = {commands[place].key: outcome for place, outcome in outcomes.items()}
    answers = {key: outcome for key, outcome in first.items() if key and not isinstance(outcome, NeedsSearch)}
    _remember(transaction, {key: (asked[key], outcome) for key, outcome in answers.items()})
    first |= {key: decoded(answer) for key, (_, answer) in known.items()}
    return [
        outcomes[place] if place in outcomes else _repeated(one, asked[one.key], first[one.key])
        for place, one in enumerate(commands)
    ]


def run_once(
    transaction: Transaction,
    key: str,
    request: object,
    act: Callable[[Transaction], Change],
    again: Callable[[Transaction], Change],
) -> Change | Refusal:
    """Carry out `act` once for a key, which may be empty; a repeat gets the answer of `again`, or the first refusal.

    `request` identifies the command: another one with the same key is refused.
    """
    if not key:
        return act(transaction)
    digest = sha256(msgspec.json.encode(request)).hexdigest()
    known = transaction.repo.events.answers([key]).get(key)
    if known is not None:
        first = decoded(known[1])
        if known[0] != digest:
            return Refusal(Code.CONFLICT, f"the key {key} was used for another command: use a new one")
        return first if isinstance(first, Refusal) else again(transaction)
    answer = act(transaction)
    _remember(transaction, {key: (digest, answer if isinstance(answer, Refusal) else _CHANGED)})
    return answer


def carry_out_bulk_once(
    transaction: Transaction, key: str, request: object, act: Callable[[Transaction], BulkOutcome]
) -> BulkOutcome | Refusal:
    """Carry out `act` once for a key, which may be empty; a repeat gets the first answer. `request` as above."""
    digest = sha256(msgspec.json.encode(request)).hexdigest()
    known = transaction.repo.events.answers([key]).get(key) if key else None
    if known is None:
        outcome = act(transaction)
        if key:
            _remember(transaction, {key: (digest, outcome)})
        return outcome
    first = decoded(known[1])
    if known[0] != digest or not isinstance(first, BulkOutcome):
        return Refusal(Code.CONFLICT, f"the key {key} was used for another command: use a new one")
    return first


def encoded(outcome: Answer) -> str:
    """Write an answer as JSON."""
    return msgspec.json.encode((type(outcome).__name__, outcome)).decode()


def decoded(text: str) -> Answer:
    """Read an answer from JSON."""
    name, fields = msgspec.json.decode(text, type=tuple[str, msgspec.Raw])
    outcome: Answer = msgspec.json.decode(fields, type=_TYPES[name])
    return outcome


def _repeated(one: Keyed, asked: str, first: Answer | NeedsSearch) -> Answer | NeedsSearch:
    if asked == _digest(one):
        return first
    return Refusal(Code.CONFLICT, f"the key {one.key} was used for another command: use a new one")


def _remember(transaction: Transaction, answers: dict[str, tuple[str, Answer]]) -> None:
    rows = [(key, digest, encoded(outcome), transaction.now) for key, (digest, outcome) in answers.items()]
    transaction.repo.events.add_answers(rows)


def _digest(one: Any) -> str:
    return sha256(msgspec.json.encode((type(one).__name__, one))).hexdigest()


# Submissions with a key: the same body with the same key gets the same graph. The caller chooses the key; it stands for
# the id of the graph if the caller has not chosen one.


#: Gets the pools in which tasks are going to run, and raises if the sender may not use them.
CheckPools = Callable[[frozenset[str]], None]


#: Gets priorities that need a right of their own, with the pools of each, and raises if the sender may not use them.
CheckPriorities = Callable[[Mapping[int, frozenset[str]]], None]


def allow_any_pool(_: frozenset[str]) -> None:
    """Allow every pool: the engine itself checks no rights."""


def allow_any_priority(_: Mapping[int, frozenset[str]]) -> None:
    """Allow every priority, likewise."""


#: Returns which of some trees (label, pool and digest) are not stored.
MissingTrees = Callable[[frozenset[tuple[str, str, str]]], Collection[tuple[str, str, str]]]


def no_missing_trees(_: frozenset[tuple[str, str, str]]) -> Collection[tuple[str, str, str]]:
    """Miss no tree: the sender has stored them."""
    return ()


class Sender(TypedDict, total=False):
    """Who sends tasks, as the engine takes it.

    Python functions of different submitters never share a worker process; submitter and user are the actor unless
    given. The checks raise if the sender may not use what they are called with.
    """

    actor: str  # the name in the audit
    submitter: str
    user: str
    may: CheckPools  # called with the pools in which tasks will run
    may_urge: CheckPriorities  # called with priorities that need a right of their own
    may_use: CheckPools  # called with the pools whose secrets tasks name


class Submitter(NamedTuple):
    """Who submits a graph: the name in the audit, the owner of the tasks, the checks of rights, and the user."""

    actor: str
    submitter: str
    may: CheckPools = allow_any_pool
    user: str = ""  # the user of the tasks, unless their tags name another
    may_urge: CheckPriorities = allow_any_priority
    may_use: CheckPools = allow_any_pool
    missing_trees: MissingTrees = no_missing_trees

    def check(self, pools: frozenset[str], tasks: Collection[Task]) -> None:
        """Raise if the sender may not submit some tasks into some pools, for their priorities or their secrets."""
        self.may(pools)
        if urgent := urgent_pools(tasks):
            self.may_urge(urgent)
        if used := secret_pools(tasks):
            self.may_use(used)


@dataclass(frozen=True, slots=True)
class KeyedSubmission:
    """A submission and its idempotency key, if it has one."""

    submission: NewGraph
    key: str = ""
    chosen: bool = False  # the sender has chosen the graph's id

    @property
    def digest(self) -> str:
        """What is compared when the key is used again."""
        digest = digest_under_key(self.submission.definition[5])
        return f"{digest} as {text_of(Key(self.submission.new_tasks.graph_id))}" if self.chosen else digest


def submit_keyed(transaction: Transaction, commands: Sequence[KeyedSubmission]) -> list[Submitted | Refusal]:
    """Store small graphs, each key once."""
    answers = []
    for one in commands:
        answer = answer_to_submission(transaction, one)
        if answer is None:
            answer = submit(transaction, [one.submission])[0]
            remember_submission(transaction, one, answer)
        answers.append(answer)
    return answers


def extend_keyed(transaction: Transaction, commands: Sequence[Extension]) -> list[Submitted | GraphChanged | Refusal]:
    """Store small extensions, each key once."""
    answers: list[Submitted | GraphChanged | Refusal] = []
    for one in commands:
        answer = answer_to(transaction.repo, one.key, one.digest) if one.key else None
        if answer is None:
            answers += extend(transaction, [one])
            if isinstance(answers[-1], Submitted):
                remember_extension(transaction, one.new_tasks.graph_id, one.key, one.digest)
        else:
            answers.append(answer)
    return answers


def digest_of_extension(graph: int, body: str) -> str:
    """Return the digest of an extension; no other command with the same key has it."""
    return f"extend {text_of(Key(graph))} {body}"


def remember_extension(transaction: Transaction, graph: int, key: str, digest: str) -> None:
    """Store that a key has extended a graph."""
    if key and not transaction.repo.events.answers([key]):
        transaction.repo.events.add_answers([(key, digest, encoded(BulkOutcome(graph, 0)), transaction.now)])


def digest_under_key(digest: str) -> str:
    """Return the digest of a submission; no other command with the same key has it."""
    return f"submit {digest}"


def answer_to_submission(transaction: Transaction, one: KeyedSubmission) -> Submitted | Refusal | None:
    """Return the first answer to the key of a submission; None if the key is new."""
    return answer_to(transaction.repo, one.key, one.digest) if one.key else None


def answer_to(repo: Repo, key: str, digest: str) -> Submitted | Refusal | None:
    """Return the first answer to a key; None if the key is new."""
    known = repo.events.answers([key]).get(key)
    if known is None:
        return None
    first = decoded(known[1])
    if known[0] != digest or not isinstance(first, BulkOutcome):
        return Refusal(Code.CONFLICT, f"the key {key} was used for another command: use a new one")
    return Submitted(first.subject, echo=True)


def remember_submission(transaction: Transaction, one: KeyedSubmission, answer: Submitted | Refusal) -> None:
    """Store which graph a key has created."""
    if one.key and isinstance(answer, Submitted):
        made = encoded(BulkOutcome(answer.graph, len(one.submission.new_tasks.tasks)))
        # It is kept as long as the graph: a submission may be repeated late.
        transaction.repo.events.add_answers([(one.key, one.digest, made, None)], answer.graph)
