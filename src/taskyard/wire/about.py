"""What a server says of itself and of who asks, as JSON. A plain dataclass, as in `wire/api.py`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class About:
    """A server: its version and its time; and the caller as the server knows them."""

    version: str
    now_ms: int
    actor: str
    kind: str  # user, bot, enrolment, run
    scopes: list[str]
    pool: str | None  # of a bot
    expires_ms: int | None
