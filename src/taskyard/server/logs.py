"""Logs: one JSON object a line, to standard error. Bodies and tokens never come here."""

import logging
import sys
from typing import Any, Final

import structlog

_SHARED: Final[list[Any]] = [
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
]


def log(name: str) -> Any:
    """Give the log of a part of the server."""
    return structlog.get_logger(name)


def configure(level: int = logging.INFO) -> None:
    """Send what this process logs, by whichever library, to standard error: for whoever owns the process."""
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    logging.basicConfig(level=level, handlers=[lines], force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
