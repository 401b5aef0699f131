"""A rig on each database, as the engine's own tests have it."""

from tests.engine.conftest import file_rig, rig

__all__ = ["file_rig", "rig"]
