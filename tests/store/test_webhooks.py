"""Webhooks, their dead deliveries and the server that sends, on both databases."""

from collections.abc import Iterator

import pytest

from taskyard.core.states import Millis
from taskyard.core.structs import struct_replace
from taskyard.store.connection import Store, open_store
from taskyard.store.repo.webhooks import DeadDelivery, WebhookRow
from tests.store.rows import LATER, NOW

HOOK = WebhookRow("a", "lab", None, "task\ngraph", "https://a.example", 0, 1, NOW, "ann", None, None, 0)
OTHER = WebhookRow("b", None, 7, "", "https://b.example", 1, 1, NOW, "bob", None, None, 0)


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    store = open_store(database_url)
    yield store
    store.close()


def test_a_changed_webhook_has_a_new_version_and_no_error(store: Store) -> None:
    with store.write() as repo:
        repo.webhooks.save(OTHER)
        repo.webhooks.save(HOOK)
        assert repo.webhooks.all() == [HOOK, OTHER]
        repo.webhooks.set_outcome("a", 1, LATER, "no answer")
        repo.webhooks.set_outcome("b", 2, LATER, "of another version")
        assert repo.webhooks.all() == [struct_replace(HOOK, failing_since_ms=LATER, error="no answer"), OTHER]
        changed = struct_replace(HOOK, pool=None, graph=3, url="https://c.example", changed_ms=LATER, changed_by="bob")
        repo.webhooks.save(changed)
        repo.webhooks.set_outcome("a", 1, LATER, "of the version before")
        assert repo.webhooks.all() == [struct_replace(changed, version=2), OTHER]


def test_webhooks_are_paused_once(store: Store) -> None:
    with store.write() as repo:
        repo.webhooks.save(HOOK)
        repo.webhooks.save(OTHER)
        repo.webhooks.pause_all()
        repo.webhooks.pause_all()
        assert repo.webhooks.all() == [struct_replace(HOOK, paused=1, version=2), OTHER]


def test_a_delivery_that_was_given_up_is_sent_again_until_it_succeeds(store: Store) -> None:
    with store.write() as repo:
        for id in ("e3", "e1", "e2"):
            repo.webhooks.add_dead("a", id, f"body of {id}", Millis(NOW), "refused")
        repo.webhooks.add_dead("b", "e1", "other", Millis(NOW), "refused")
        assert [one.id for one in repo.webhooks.dead("a", "", 9)] == ["e1", "e2", "e3"]
        assert repo.webhooks.dead("a", "e1", 1) == [DeadDelivery("e2", NOW, "refused", 0)]
        assert repo.webhooks.to_send_again("a", 9) == []
        assert repo.webhooks.send_again("a", ["e1", "e3", "none"]) == 2
        assert repo.webhooks.to_send_again("a", 9) == [("e1", "body of e1"), ("e3", "body of e3")]
        assert repo.webhooks.to_send_again("a", 1) == [("e1", "body of e1")]
        repo.webhooks.add_dead("a", "e1", "body of e1", Millis(LATER), "again refused")
        repo.webhooks.delete_dead("a", "e3")
        assert repo.webhooks.dead("a", "", 9) == [
            DeadDelivery("e1", LATER, "again refused", 0),
            DeadDelivery("e2", NOW, "refused", 0),
        ]
        assert repo.webhooks.send_again("a", []) == 2
        assert (len(repo.webhooks.to_send_again("a", 9)), repo.webhooks.to_send_again("b", 9)) == (2, [])


def test_a_webhook_is_deleted_with_its_dead_deliveries(store: Store) -> None:
    with store.write() as repo:
        repo.webhooks.save(HOOK)
        repo.webhooks.save(OTHER)
        repo.webhooks.add_dead("a", "e1", "x", Millis(NOW), "refused")
        repo.webhooks.add_dead("b", "e1", "x", Millis(NOW), "refused")
        assert [row.dead for row in repo.webhooks.all()] == [1, 1]
        assert repo.webhooks.delete("a") is True
        assert repo.webhooks.delete("a") is False
        assert (repo.webhooks.dead("a", "", 9), len(repo.webhooks.dead("b", "", 9))) == ([], 1)
        assert repo.webhooks.all() == [struct_replace(OTHER, dead=1)]


def test_one_server_sends_until_it_lets_go_or_its_time_is_over(store: Store) -> None:
    with store.write() as repo:
        assert repo.webhooks.take_sender("s1", Millis(NOW), Millis(NOW + 10))
        assert not repo.webhooks.take_sender("s2", Millis(NOW + 9), Millis(NOW + 99))
        assert repo.webhooks.take_sender("s1", Millis(NOW + 9), Millis(NOW + 20))
        assert not repo.webhooks.take_sender("s2", Millis(NOW + 19), Millis(NOW + 99))
        assert repo.webhooks.take_sender("s2", Millis(NOW + 20), Millis(NOW + 99))
        repo.webhooks.release_sender("s1")  # it is not the one any more
        assert not repo.webhooks.take_sender("s1", Millis(NOW + 20), Millis(NOW + 99))
        repo.webhooks.release_sender("s2")
        assert repo.webhooks.take_sender("s1", Millis(NOW + 20), Millis(NOW + 99))
