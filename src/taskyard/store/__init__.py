"""The store: SQL is the only truth. It has set-shaped verbs and decides nothing."""
