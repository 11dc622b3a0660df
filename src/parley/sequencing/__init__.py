"""Allocators of sequence numbers for two_phase: a DynamoDB counter, Redis, or the Sequence Service."""
