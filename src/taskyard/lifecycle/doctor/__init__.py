"""The doctor of a store: recount the stored counts, check the invariants, and repair counts."""
