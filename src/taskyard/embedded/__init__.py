"""Run a graph on a server and a bot that exist only for the run: the command `taskyard run`."""
