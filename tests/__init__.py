"""The tests, in layers: each folder says what it may touch."""
