"""The catalogue: stored documents that describe resources, templates and schedules, and what they may refer to."""
