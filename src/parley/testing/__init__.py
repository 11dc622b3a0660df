"""Faults that a test injects into a server through its environment. Off by default."""
