"""A bot as a program, configured by one argument instead of the command line."""

import base64
import logging
import sys
from pathlib import Path

import msgspec

from taskyard.bot.agent import run
from taskyard.bot.caches import CacheLimits
from taskyard.bot.config import BotConfig
from taskyard.bot.health_check import CheckSpec

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    fields = msgspec.json.decode(base64.b64decode(sys.argv[1]))
    for name in ("state", "dimensions_file"):
        if name in fields:
            fields[name] = Path(fields[name])
    for name, kind in (("check", CheckSpec), ("caches", CacheLimits)):
        if name in fields:
            fields[name] = kind(**fields[name])
    raise SystemExit(run(BotConfig(**fields)))
