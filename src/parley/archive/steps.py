"""The points of an archiver at which a test may end the process. Pure."""

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
