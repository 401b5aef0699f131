"""Admission: which pending tasks may wait for a bot, over all pools, under one lock."""
