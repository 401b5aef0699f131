"""Warm Python worker processes that call the functions of `python` tasks."""
