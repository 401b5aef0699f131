"""Everything that is only read: what happened, how it stands, and why. A view never writes."""
