"""Every rule of Taskyard, as tables and functions.

Nothing here reads a clock, uses randomness, opens a file or writes a log: `now`, ids and random numbers are arguments.
So every rule can be tested in any order. Start with `states`.
"""
