"""The schema's history, version by version. A version that was released is never edited; a new one follows it."""
