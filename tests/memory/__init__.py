"""An engine in memory: a short example of an engine, and the reference model for the others."""
