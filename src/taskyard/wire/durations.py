"""Durations as people write them: the parser of the core, for programs that speak to a server."""

from taskyard.core.durations import span_ms, span_text

__all__ = ["span_ms", "span_text"]
