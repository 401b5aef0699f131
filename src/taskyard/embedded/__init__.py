"""Runs a graph on a server and a bot of its own, which exist only for the run."""
