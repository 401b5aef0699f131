"""The life cycle of tasks: one module for each step. Each reads facts, decides with `core`, and writes the result.

A step takes the commands that arrived together and returns an outcome for each. Steps do not call each other: they meet
in `Transaction`, which applies transitions, propagates them to dependents and keeps the counts of the graphs.
"""
