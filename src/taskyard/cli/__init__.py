"""The command line: data goes to stdout, messages to stderr.

Commands speak to a server over the wire. What they cannot ask a server for, such as a local run, is given to them by
`taskyard.main` in the shapes of `ports.py`.
"""
