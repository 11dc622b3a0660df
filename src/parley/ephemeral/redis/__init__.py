"""What may be lost, in Redis or Valkey, where all nodes see it: one primary, not a cluster of shards."""
