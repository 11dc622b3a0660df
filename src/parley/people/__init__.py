"""Use cases of what people notice of each other: receipts, typing, presence, contacts and blocks."""
