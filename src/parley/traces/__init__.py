"""Use case: what became of a message, and what a node remembers of it."""
