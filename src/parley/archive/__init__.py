"""The cold tier: old entries in segments of an object store, and what reads, checks and erases them."""
