"""Runs a graph to its end on a server and a bot of its own: they come and go with the run, and leave nothing behind.

What it cannot do is refused before anything starts (`refusals`), never ignored. Imported only when it is needed: a
server costs time to load.
"""
