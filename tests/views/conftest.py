"""The harness fixtures of the engine tests."""

from tests.engine.conftest import harness, sqlite_harness

__all__ = ["harness", "sqlite_harness"]
