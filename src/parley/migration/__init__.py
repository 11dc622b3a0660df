"""Data that comes and goes: copies to another engine, exports, imports. See docs/backup-and-migration.md."""
