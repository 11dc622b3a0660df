"""Decisions without IO: no await, no clock, no chance, no log. What they need is passed in."""
