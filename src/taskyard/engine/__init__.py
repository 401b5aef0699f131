"""The engine: commands gather, are carried out in one transaction, and are answered after it commits."""
