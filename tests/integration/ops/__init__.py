"""The services script, as people and tests use it."""
