"""Read-only answers for the API: state, history, and why. A view never writes."""
