"""Keeping what a server holds: backups, copies to another engine, exports and imports."""
