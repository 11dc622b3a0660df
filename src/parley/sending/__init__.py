"""Use cases: what becomes of a message on its way to the log, and what is done to it there."""
