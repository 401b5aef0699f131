"""Submissions under a key: whoever submits the same body with the same key again gets the graph it got before.

The key is the caller's own; it stands for the graph's id where the caller has not chosen one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from taskyard.core.ids import Key, text_of
from taskyard.engine.passage import Passage
from taskyard.lifecycle.commands import Asked, Code, Refusal
from taskyard.lifecycle.idempotency import decoded, encoded
from taskyard.lifecycle.submit import Changed, Extension, Submission, Submitted, extend, submit
from taskyard.store.txn import Txn

#: Is told in which pools something is going to run, and raises if that may not be.
May = Callable[[frozenset[str]], None]


def anywhere(_: frozenset[str]) -> None:
    """Let the sender submit into any pool: the engine itself asks nobody for rights."""


class Sender(NamedTuple):
    """Who submits something: as the audit names them, whose tasks these are, and where they may run."""

    actor: str
    submitter: str
    may: May = anywhere


@dataclass(frozen=True, slots=True)
class Named:
    """A submission, and what its sender calls it; empty if it is never repeated without an id."""

    submission: Submission
    key: str = ""
    chosen: bool = False  # the sender has chosen the graph's id

    @property
    def digest(self) -> str:
        """What is compared when the key comes again."""
        digest = digest_under_key(self.submission.definition[5])
        return f"{digest} as {text_of(Key(self.submission.brood.graph_id))}" if self.chosen else digest


def submit_named(passage: Passage, commands: Sequence[Named]) -> list[Submitted | Refusal]:
    """Store small graphs, each key once."""
    answers = []
    for one in commands:
        answer = answered(passage, one)
        if answer is None:
            answer = submit(passage, [one.submission])[0]
            remember(passage, one, answer)
        answers.append(answer)
    return answers


def extend_named(passage: Passage, commands: Sequence[Extension]) -> list[Submitted | Changed | Refusal]:
    """Store small extensions, each key once."""
    answers: list[Submitted | Changed | Refusal] = []
    for one in commands:
        answer = answer_to(passage.txn, one.key, one.digest) if one.key else None
        if answer is None:
            answers += extend(passage, [one])
            if isinstance(answers[-1], Submitted):
                remember_extension(passage, one.brood.graph_id, one.key, one.digest)
        else:
            answers.append(answer)
    return answers


def digest_of_extension(graph: int, body: str) -> str:
    """Tell an extension from anything else that may have used its key."""
    return f"extend {text_of(Key(graph))} {body}"


def remember_extension(passage: Passage, graph: int, key: str, digest: str) -> None:
    """Keep that a key has extended a graph."""
    if key and not passage.txn.events.answers([key]):
        passage.txn.events.add_answers([(key, digest, encoded(Asked(graph, 0)), passage.now)])


def digest_under_key(digest: str) -> str:
    """Tell a submission from anything else that may have used its key."""
    return f"submit {digest}"


def answered(passage: Passage, one: Named) -> Submitted | Refusal | None:
    """Give what was answered to the key of a submission before."""
    return answer_to(passage.txn, one.key, one.digest) if one.key else None


def answer_to(txn: Txn, key: str, digest: str) -> Submitted | Refusal | None:
    """Give what was answered to a key; None if it is new."""
    known = txn.events.answers([key]).get(key)
    if known is None:
        return None
    first = decoded(known[1])
    if known[0] != digest or not isinstance(first, Asked):
        return Refusal(Code.CONFLICT, f"the key {key} was used for something else: take a new one")
    return Submitted(first.subject, echo=True)


def remember(passage: Passage, one: Named, answer: Submitted | Refusal) -> None:
    """Keep which graph a key has made."""
    if one.key and isinstance(answer, Submitted):
        made = encoded(Asked(answer.graph, len(one.submission.brood.tasks)))
        # For as long as the graph: whoever repeats a submission may come late.
        passage.txn.events.add_answers([(one.key, one.digest, made, None)])
