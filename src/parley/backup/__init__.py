"""Backups of a store in a folder: made, restored, pruned. See docs/backup-and-migration.md."""
