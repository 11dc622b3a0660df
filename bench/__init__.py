"""Measurements of a running server, beside the ceilings of the machine they ran on."""
