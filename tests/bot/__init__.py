"""Bots: what they run, and what they say of it."""
