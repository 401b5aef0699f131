"""The store: everything durable is in SQL. Repositories read and write sets of rows and hold no policy."""
