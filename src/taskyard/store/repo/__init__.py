"""One repository class per concept: named queries as methods that take and return sets of rows."""
