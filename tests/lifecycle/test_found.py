"""What the model found: each is the shortest way to something that once went wrong."""

from taskyard.core.fleet import DEAD_AFTER_MS
from taskyard.lifecycle.polling import Polled
from tests.lifecycle.grounds import Grounds
from tests.lifecycle.yard import chain


def test_a_bot_that_was_silent_for_too_long_gets_work_by_its_first_poll(yard: Grounds) -> None:
    yard.hello("rack1")
    labels = yard.submit(chain("a"))
    yard.wait(DEAD_AFTER_MS + 1)
    assert [lease.task for lease in yard.claim("rack1")] == [labels["a"]]


def test_a_hello_within_a_session_does_not_forget_what_the_last_poll_gave(yard: Grounds) -> None:
    yard.hello("rack1")
    yard.submit(chain("a", "b"))
    first = yard.poll("rack1", 1, poll="p")
    yard.hello("rack1")
    assert isinstance(first, Polled)
    assert yard.poll("rack1", 1, poll="p") == first
