"""The embedded engine: one SQLite file, written by one connection, group-committed."""
