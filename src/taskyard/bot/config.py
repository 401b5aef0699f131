"""How a bot is set up: by whoever starts it, once. Nothing here is read from anywhere."""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from taskyard.bot.task_user import TaskUser
from taskyard.wire.bots import OUTPUT_MAX, Welcome


@dataclass(frozen=True, slots=True)
class BotConfig:
    """Where the server is, who the bot is, how much it runs at once, and where it keeps what it must not forget."""

    url: str
    token: str = field(repr=False)
    name: str
    slots: int
    state: Path  # a folder of its own: two bots never share one
    dimensions: Mapping[str, list[str]] = field(default_factory=dict)  # given ones win over detected ones
    dimensions_file: Path | None = None  # lines of `key=value`; a change of it takes effect at once
    once: bool = False  # take one batch, and end when it is done
    keep_output: Path | None = None  # a folder for what attempts print and the server does not get as it is printed
    output_max: int = OUTPUT_MAX  # how many bytes of what an attempt prints are kept
    ca_file: str | None = None  # with the certificate of who signed the server's; tasks hear of it
    tls: ssl.SSLContext | None = None  # what follows from it
    user: TaskUser | None = None  # as whom tasks run; None: as the bot does
    inherit: bool = False  # whether tasks have all of the bot's own environment, not only what programs need
    connected: Callable[[Welcome], None] | None = field(default=None, compare=False)  # hears of the first welcome

    @property
    def marker(self) -> str:
        """What everything that this bot starts carries in its surroundings, over all its lives."""
        return f"{self.state.resolve()}#{self.name}"
