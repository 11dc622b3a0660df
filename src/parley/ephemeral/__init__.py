"""State that may be lost: nodes and devices, presence, rate counts, and signals."""
