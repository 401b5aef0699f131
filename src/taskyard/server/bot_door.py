"""The door for bots: who shows a bot's token comes in, into the pool of the token."""

from taskyard.server.auth import Denial
from taskyard.server.bots import BotRoutes
from taskyard.server.desk import Desk


class BotDoor:
    """Lets bots in, and gives out the tokens of running tasks."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.run_token = desk.seal.token

    def pool_of(self, authorization: bytes) -> str:
        """Name the pool of the bots that a token lets in; raise Refused if it lets nobody in."""
        kind, _, text = authorization.decode("latin-1").partition(" ")
        grant = self._desk.auth.bot(text.strip() if kind.lower() == "bearer" and text.strip() else None)
        if isinstance(grant, Denial):
            raise self._desk.deny(grant, "a bot comes in")
        return grant.pool


def bot_routes(desk: Desk) -> BotRoutes:
    """Make the routes of bots behind their door."""
    return BotRoutes(desk.engine, BotDoor(desk))
