"""The routes of the user API, by subject. Each authorizes the caller, asks the engine or a view, and answers."""
