"""Whether a store is sound, and the recovery of a lost counter: decided over the rows of any engine."""
