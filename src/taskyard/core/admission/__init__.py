"""Admission: the rule, and an index that applies it at a cost that follows what changed."""
