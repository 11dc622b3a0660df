"""The cold tier: its format, and what decides about it."""
