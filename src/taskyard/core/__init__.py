"""Every rule of Taskyard, as tables and functions.

Nothing in here reads a clock, rolls a die, opens a file or writes a log: `now`, ids and chance are arguments.
So every rule can be tried in a test, in any order, at any time of day. Start with `words`, then `machine`.
"""
