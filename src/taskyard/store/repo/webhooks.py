"""Repository of webhooks, of the deliveries that were given up, and of the server that sends."""

from collections.abc import Collection

from taskyard.core.states import Millis
from taskyard.core.structs import value
from taskyard.store.queries import Session


@value
class WebhookRow:
    """A stored webhook."""

    name: str
    pool: str | None  # only events of graphs with tasks of this pool,
    graph: int | None  # of this graph,
    kinds: str  # and of these kinds, one per line; empty: all
    url: str
    paused: int  # 1: nothing is sent
    version: int
    changed_ms: int
    changed_by: str
    failing_since_ms: int | None
    error: str | None
    dead: int  # how many deliveries were given up


@value
class DeadDelivery:
    """A delivery that was given up."""

    id: str  # of the event
    died_ms: int
    error: str
    again: int  # 1: it is to be sent again


class WebhookRepo:
    """The tables `webhook`, `dead_delivery` and `webhook_sender`."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def all(self) -> list[WebhookRow]:
        """Return all webhooks, by name."""
        return [WebhookRow(*row) for row in self._session.fetch("select_webhooks")]

    def save(self, row: WebhookRow) -> None:
        """Store a webhook, with a new version."""
        settings = (row.pool, row.graph, row.kinds, row.url, row.paused, row.changed_ms, row.changed_by)
        self._session.execute("upsert_webhook", row.name, *settings)

    def delete(self, name: str) -> bool:
        """Delete a webhook with its dead deliveries; return whether it was there."""
        self._session.execute("delete_dead_deliveries", name)
        return self._session.execute("delete_webhook", name) > 0

    def pause_all(self) -> None:
        """Pause all webhooks."""
        self._session.execute("pause_webhooks")

    def set_outcome(self, name: str, version: int, failing_since: int | None, error: str | None) -> None:
        """Store how the last delivery ended, unless the webhook has changed since."""
        self._session.execute("update_webhook_outcome", name, version, failing_since, error)

    def add_dead(self, name: str, id: str, body: str, now: Millis, error: str) -> None:
        """Store a delivery that was given up, or was given up again."""
        self._session.execute("insert_dead_delivery", name, id, body, now, error)

    def dead(self, name: str, after: str, count: int) -> list[DeadDelivery]:
        """Return deliveries that were given up, after an id."""
        found = self._session.fetch("select_dead_deliveries", name, after, count)
        return [DeadDelivery(*row) for row in found]

    def send_again(self, name: str, ids: Collection[str]) -> int:
        """Have some deliveries sent again, or all if none are named; return how many."""
        if ids:
            return self._session.execute("send_deliveries_again", name, ids)
        return self._session.execute("send_all_deliveries_again", name)

    def to_send_again(self, name: str, count: int) -> list[tuple[str, str]]:
        """Return deliveries that are to be sent again: ids and bodies."""
        return [(row[0], row[1]) for row in self._session.fetch("select_deliveries_again", name, count)]

    def delete_dead(self, name: str, id: str) -> None:
        """Delete a delivery that has succeeded after all."""
        self._session.execute("delete_dead_delivery", name, id)

    def take_sender(self, holder: str, now: Millis, until: Millis) -> bool:
        """Become the server that sends, or stay it; return False if another one is."""
        return self._session.execute("take_webhook_sender", holder, now, until) > 0

    def release_sender(self, holder: str) -> None:
        """Let another server send at once."""
        self._session.execute("release_webhook_sender", holder)
