"""Taskyard runs graphs of tasks on a fleet of machines, never loses one, and can say why a task is not running."""
