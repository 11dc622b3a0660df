"""Hop 5: news of what became durable. A hint that carries the body; the log is the truth."""
