"""Parley: every chat is one totally ordered, durable log."""

__version__ = "0.1.0"
