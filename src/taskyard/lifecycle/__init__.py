"""The life cycle: one room per step, each of which looks, thinks and does.

A room takes the commands that arrived together and gives an outcome for each. Rooms never use each other: they meet in
the corridor (`moves.py`), which carries moves, tells dependents and keeps the graph's counts.
"""
