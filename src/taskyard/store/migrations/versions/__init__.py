"""One file for each version, in order. What is big stands in a package beside its version."""
