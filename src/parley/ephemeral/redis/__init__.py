"""Ephemeral state in Redis or Valkey, shared by all nodes: one primary, not a cluster of shards."""
