"""Runs a graph to its end on a server and a bot of its own: they come and go with the run, and leave nothing behind.

It is what its modules say, and imports none of them: a server costs time to load.
"""
