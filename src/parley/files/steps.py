"""The points at which a test may end a process that works on files. Pure."""

from __future__ import annotations

FILE_LABELS = (
    "file_after_part",
    "file_before_complete",
    "file_after_claim",
    "file_after_append",
    "file_after_mark",
    "file_after_amend",
    "file_after_bytes",
)
