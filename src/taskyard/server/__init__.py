"""The HTTP server: routes, authentication and limits on top of the engine."""
