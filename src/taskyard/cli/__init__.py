"""The program `taskyard` as people and scripts meet it: commands, views, exit codes.

Data goes to stdout and talk to stderr. Nothing here runs a task or judges a graph: the work is handed in by the
composition root (`work.py` says in which shape), and only the wire is spoken.
"""
