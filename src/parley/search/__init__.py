"""Use case: who may search where, and the index that answers."""
