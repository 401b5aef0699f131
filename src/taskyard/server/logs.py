"""Logs: one JSON object a line, to standard error. They never contain bodies or tokens.

They go through the standard library's logging, so that a program with a server in it can configure them: without
`configure`, only warnings are shown.
"""

import logging
import sys
from typing import Any, Final

import structlog

_FACTS: Final[list[Any]] = [
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
]


def log(name: str) -> Any:
    """Return the logger of a part of the server."""
    return structlog.wrap_logger(
        logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, *_FACTS, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def configure(level: int = logging.INFO) -> None:
    """Send the logs of all libraries in this process to standard error; for a program that is only a server."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_FACTS,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    logging.basicConfig(level=level, handlers=[lines], force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
