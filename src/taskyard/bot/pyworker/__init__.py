"""Warm Python workers: processes that call the functions of `python` tasks, one after another."""
