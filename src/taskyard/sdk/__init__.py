"""How programs talk with a server: one client for all routes. It knows the wire and nothing else of Taskyard."""
