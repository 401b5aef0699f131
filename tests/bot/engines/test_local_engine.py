"""The local engine passes the tests of every engine."""

from taskyard.bot.engines.conformance import EngineConformance


class TestLocalEngine(EngineConformance):
    engine = "local"
