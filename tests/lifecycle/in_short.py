"""Answers without what they count and name, for tests that are about something else."""

from taskyard.core.structs import struct_replace
from taskyard.lifecycle.commands import BulkOutcome


def in_short(answer: object) -> object:
    return struct_replace(answer, total=0, unblocked=0, tasks=()) if isinstance(answer, BulkOutcome) else answer
