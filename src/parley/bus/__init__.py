"""Publishes durable entries. An event is a hint that carries the entry; the log is the truth."""
