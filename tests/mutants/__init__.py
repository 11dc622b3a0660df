"""Faults that are planted one at a time, each with the test that must notice it: `make mutants`."""
