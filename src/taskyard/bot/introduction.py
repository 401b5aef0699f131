"""How a bot introduces itself: who it is, what its machine is like, and whether it takes work.

It can be said again at any time, with the same session, when something about the bot has changed.
"""

import logging
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from taskyard.bot import dimensions
from taskyard.bot.config import BotConfig
from taskyard.bot.link import Link
from taskyard.wire.bots import Begun, Hello, Welcome

_LOG = logging.getLogger("taskyard.bot")


class Introduction:
    """What one session says of itself."""

    def __init__(self, config: BotConfig, session: str, welcomed: Callable[[Welcome], None]) -> None:
        self.session = session
        self._welcomed = welcomed  # hears how the server deals with bots
        self.draining = False
        self.maintenance: str | None = None  # why it takes no work for now
        self.begun: list[Begun] | None = []  # what earlier lives had begun, until the server has heard it
        self._config = config
        self._version = _version()
        self._read = _stamp(config.dimensions_file)
        self._from_file: dimensions.Dimensions = {}

    async def hello(self, link: Link) -> Welcome:
        """Say it over a connection."""
        hello = Hello(
            bot=self._config.name,
            session=self.session,
            dimensions=self._dimensions(),
            slots=self._config.slots,
            draining=self.draining,
            maintenance=self.maintenance,
            version=self._version,
            begun=self.begun,
        )
        welcome = await link.hello(hello)
        self._welcomed(welcome)
        return welcome

    async def hello_once(self) -> Welcome:
        """Say it over a connection of its own."""
        link = Link(self._config)
        try:
            return await self.hello(link)
        finally:
            link.close()

    def has_changed(self) -> bool:
        """Whether the file of dimensions is another than when it was last read."""
        return _stamp(self._config.dimensions_file) != self._read

    def _dimensions(self) -> dimensions.Dimensions:
        file = self._config.dimensions_file
        self._read = _stamp(file)
        if file is not None:
            try:
                self._from_file = dimensions.read_file(file)
            except (OSError, ValueError) as error:
                _LOG.warning("the file of dimensions stays as it was read before: %s", error)
        return dimensions.together(dimensions.detected(), self._from_file, self._config.dimensions)


def _stamp(file: Path | None) -> tuple[int, int] | None:
    if file is None:
        return None
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _version() -> str:
    try:
        return version("taskyard")
    except PackageNotFoundError:
        return ""
