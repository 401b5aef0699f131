"""The lifecycle package against a simple model: the same steps lead to the same states."""
