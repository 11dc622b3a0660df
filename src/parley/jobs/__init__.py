"""Background jobs, supervised. See docs/jobs.md."""
