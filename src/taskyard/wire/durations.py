"""Durations as documents write them, for clients: the parser is that of the core."""

from taskyard.core.graph import span_ms, span_text

__all__ = ["span_ms", "span_text"]
