"""The doctor of a store: recount what is stored, and report what does not follow from the rest."""
