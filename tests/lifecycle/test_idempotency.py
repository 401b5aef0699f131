"""The first answer to a key: a repeat gets it again, another command under it is refused."""

import pytest

from taskyard.core.graph.errors import Fault
from taskyard.core.states import State
from taskyard.lifecycle.cancel import cancel
from taskyard.lifecycle.commands import BulkOutcome, Cancel, Code, Done, NeedsSearch, Refusal, Rerun
from taskyard.lifecycle.idempotency import Answer, carry_out_keyed, decoded, encoded
from taskyard.lifecycle.rerun import rerun
from tests.lifecycle.grounds import Grounds
from tests.lifecycle.yard import chain


def canceled(yard: Grounds, *commands: Cancel) -> list[Answer | NeedsSearch]:
    return yard.do(lambda transaction: carry_out_keyed(transaction, commands, cancel))


def test_a_repeat_gets_the_first_answer_and_does_nothing(yard: Grounds) -> None:
    labels = yard.submit(chain("a"))
    wish = Cancel(labels["a"], actor="ann", key="k1")
    assert canceled(yard, wish) == [Done(labels["a"], State.CANCELED)]
    yard.rerun(labels["a"])
    assert canceled(yard, wish) == [Done(labels["a"], State.CANCELED)]
    assert yard.words(labels) == {"a": "waiting"}


def test_another_command_under_the_same_key_is_refused(yard: Grounds) -> None:
    labels = yard.submit(chain("a", "b"))
    canceled(yard, Cancel(labels["a"], actor="ann", key="k1"))
    for other in (Cancel(labels["b"], actor="ann", key="k1"), Cancel(labels["a"], actor="bob", key="k1")):
        (refused,) = canceled(yard, other)
        assert isinstance(refused, Refusal)
        assert refused.code is Code.CONFLICT
    (again,) = yard.do(
        lambda transaction: carry_out_keyed(transaction, [Rerun(labels["a"], actor="ann", key="k1")], rerun)
    )
    assert isinstance(again, Refusal)
    assert yard.words(labels) == {"a": "canceled", "b": "blocked"}


def test_a_key_twice_in_one_batch_is_a_repeat(yard: Grounds) -> None:
    labels = yard.submit(chain("a", "b"))
    wish, other = Cancel(labels["b"], key="k1"), Cancel(labels["a"], key="k1")
    first, again, refused = canceled(yard, wish, wish, other)
    assert first == again == Done(labels["b"], State.CANCELED)
    assert isinstance(refused, Refusal)
    assert yard.words(labels) == {"a": "waiting", "b": "canceled"}


def test_a_command_without_a_key_is_carried_out_each_time(yard: Grounds) -> None:
    labels = yard.submit(chain("a"))
    wish = Cancel(labels["a"])
    assert canceled(yard, wish, wish) == [
        Done(labels["a"], State.CANCELED),
        Done(labels["a"], State.CANCELED, echo=True),
    ]


def test_a_refusal_is_an_answer_too(yard: Grounds) -> None:
    labels = yard.submit(chain("a"))
    yard.hello("rack1")
    yard.run("rack1", labels)
    wish = Cancel(labels["a"], key="k1")
    assert canceled(yard, wish) == canceled(yard, wish)


@pytest.mark.parametrize(
    "outcome",
    [
        Done(7, State.STOPPING, echo=True),
        BulkOutcome(7, 3, promised=True),
        Refusal(Code.INVALID, "no", (Fault("tasks.a", "is wrong", ("a", "b")),)),
    ],
)
def test_an_answer_is_read_back_as_it_was(outcome: Answer) -> None:
    assert decoded(encoded(outcome)) == outcome
