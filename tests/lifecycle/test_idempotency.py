"""The first answer to a key: a repeat gets it again, another command under it is refused."""

import pytest

from taskyard.core.graph.errors import Fault
from taskyard.core.states import State
from taskyard.lifecycle.cancel import cancel
from taskyard.lifecycle.commands import BulkOutcome, Cancel, Code, Done, NeedsSearch, Refusal, Rerun
from taskyard.lifecycle.idempotency import Answer, carry_out_keyed, decoded, encoded
from taskyard.lifecycle.rerun import rerun
from tests.lifecycle.graphs import chain
from tests.lifecycle.harness import LifecycleHarness


def canceled(harness: LifecycleHarness, *commands: Cancel) -> list[Answer | NeedsSearch]:
    return harness.do(lambda transaction: carry_out_keyed(transaction, commands, cancel))


def test_a_repeat_gets_the_first_answer_and_does_nothing(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a"))
    request = Cancel(labels["a"], actor="ann", key="k1")
    assert canceled(harness, request) == [Done(labels["a"], State.CANCELED)]
    harness.rerun(labels["a"])
    assert canceled(harness, request) == [Done(labels["a"], State.CANCELED)]
    assert harness.state_names(labels) == {"a": "waiting"}


def test_another_command_under_the_same_key_is_refused(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a", "b"))
    canceled(harness, Cancel(labels["a"], actor="ann", key="k1"))
    for other in (Cancel(labels["b"], actor="ann", key="k1"), Cancel(labels["a"], actor="bob", key="k1")):
        (refused,) = canceled(harness, other)
        assert isinstance(refused, Refusal)
        assert refused.code is Code.CONFLICT
    (again,) = harness.do(
        lambda transaction: carry_out_keyed(transaction, [Rerun(labels["a"], actor="ann", key="k1")], rerun)
    )
    assert isinstance(again, Refusal)
    assert harness.state_names(labels) == {"a": "canceled", "b": "blocked"}


def test_a_key_twice_in_one_batch_is_a_repeat(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a", "b"))
    request, other = Cancel(labels["b"], key="k1"), Cancel(labels["a"], key="k1")
    first, again, refused = canceled(harness, request, request, other)
    assert first == again == Done(labels["b"], State.CANCELED)
    assert isinstance(refused, Refusal)
    assert harness.state_names(labels) == {"a": "waiting", "b": "canceled"}


def test_a_command_without_a_key_is_carried_out_each_time(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a"))
    request = Cancel(labels["a"])
    assert canceled(harness, request, request) == [
        Done(labels["a"], State.CANCELED),
        Done(labels["a"], State.CANCELED, echo=True),
    ]


def test_a_refusal_is_an_answer_too(harness: LifecycleHarness) -> None:
    labels = harness.submit(chain("a"))
    harness.hello("rack1")
    harness.run("rack1", labels)
    request = Cancel(labels["a"], key="k1")
    assert canceled(harness, request) == canceled(harness, request)


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
