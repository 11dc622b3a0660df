"""Attacks by name, each shown to fail."""
