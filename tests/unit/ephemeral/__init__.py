"""Tests of the rooms of what may be lost."""
