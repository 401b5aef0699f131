"""What goes between people, clients and servers: documents, shapes and faults, as text and as plain values.

Nothing here decides whether a graph is good; it only says whether a text can be read, and where in it something is.
"""
