"""The points of an archiver and of an erasure at which a test may end the process. Pure."""

from __future__ import annotations

ARCHIVE_LABELS = (
    "archive_before_upload",
    "archive_after_upload",
    "archive_before_record",
    "archive_after_record",
    "archive_before_trim",
    "archive_after_trim",
    "archive_after_sweep",
)

ERASURE_LABELS = (
    "erasure_after_count",
    "erasure_after_removal",
)
"""Before and after each step of an erasure removes what it has counted."""
