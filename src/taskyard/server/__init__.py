"""The engine over HTTP: routes of a few lines each, who may use them, and how refusals are told."""
