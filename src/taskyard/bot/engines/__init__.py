"""Engines: what runs the leased attempts of a bot. `protocol.py` says what one does; others come by entry points."""
