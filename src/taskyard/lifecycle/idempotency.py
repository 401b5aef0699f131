"""The first answer to a key: whoever repeats a command gets it again, and nothing is done twice.

Another command under the same key is refused. A refusal is an answer too; that something is too far away is not.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

from taskyard.lifecycle.commands import Asked, Code, Done, Far, Refusal
from taskyard.lifecycle.transaction import Transaction

#: What can be remembered.
Answer: TypeAlias = Done | Refusal | Asked


class Keyed(Protocol):
    """A command that may carry a key; it is a dataclass."""

    @property
    def key(self) -> str:
        """What its sender calls it; empty if it is never repeated."""


Command = TypeVar("Command", bound=Keyed)
Change = TypeVar("Change")
#: Stands for an answer that is made anew for each repeat.
_CHANGED: Final = Asked(0, 0)

_TYPES: Final[dict[str, type[Answer]]] = {one.__name__: one for one in (Done, Refusal, Asked)}


def keyed(
    corridor: Transaction,
    commands: Sequence[Command],
    carry_out: Callable[[Transaction, Sequence[Command]], Sequence[Answer | Far]],
) -> list[Answer | Far]:
    """Carry out commands, each key once; answer repeats as the first was answered."""
    known = corridor.txn.events.answers({one.key for one in commands if one.key})
    asked = {key: digest for key, (digest, _) in known.items()}
    news = []
    for place, one in enumerate(commands):
        if not one.key or one.key not in asked:
            news.append(place)
            asked[one.key] = _digest(one)
    outcomes = dict(zip(news, carry_out(corridor, [commands[place] for place in news]), strict=True))
    first = {commands[place].key: outcome for place, outcome in outcomes.items()}
    said = {key: outcome for key, outcome in first.items() if key and not isinstance(outcome, Far)}
    _remember(corridor, {key: (asked[key], outcome) for key, outcome in said.items()})
    first |= {key: decoded(answer) for key, (_, answer) in known.items()}
    return [
        outcomes[place] if place in outcomes else _repeated(one, asked[one.key], first[one.key])
        for place, one in enumerate(commands)
    ]


def once(
    corridor: Transaction,
    key: str,
    said: object,
    act: Callable[[Transaction], Change],
    again: Callable[[Transaction], Change],
) -> Change | Refusal:
    """Change something under a key, which may be empty; for a repeat change nothing, and answer by `again`.

    `said` is what was asked for: something else under the same key is refused. A refusal is given again.
    """
    if not key:
        return act(corridor)
    digest = sha256(msgspec.json.encode(said)).hexdigest()
    known = corridor.txn.events.answers([key]).get(key)
    if known is not None:
        first = decoded(known[1])
        if known[0] != digest:
            return Refusal(Code.CONFLICT, f"the key {key} was used for something else: take a new one")
        return first if isinstance(first, Refusal) else again(corridor)
    answer = act(corridor)
    _remember(corridor, {key: (digest, answer if isinstance(answer, Refusal) else _CHANGED)})
    return answer


def encoded(outcome: Answer) -> str:
    """Write an answer down."""
    return msgspec.json.encode((type(outcome).__name__, outcome)).decode()


def decoded(text: str) -> Answer:
    """Read an answer."""
    name, fields = msgspec.json.decode(text, type=tuple[str, msgspec.Raw])
    outcome: Answer = msgspec.json.decode(fields, type=_TYPES[name])
    return outcome


def _repeated(one: Keyed, asked: str, first: Answer | Far) -> Answer | Far:
    if asked == _digest(one):
        return first
    return Refusal(Code.CONFLICT, f"the key {one.key} was used for something else: take a new one")


def _remember(corridor: Transaction, answers: dict[str, tuple[str, Answer]]) -> None:
    rows = [(key, digest, encoded(outcome), corridor.now) for key, (digest, outcome) in answers.items()]
    corridor.txn.events.add_answers(rows)


def _digest(one: Any) -> str:
    return sha256(msgspec.json.encode((type(one).__name__, one))).hexdigest()
