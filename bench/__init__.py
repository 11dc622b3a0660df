"""Benchmarks of a running server, with the ceilings of the machine in the same run."""
