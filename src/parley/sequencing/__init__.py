"""Who gives the numbers when sequencing is two_phase: a DynamoDB counter, Redis, or the Sequence Service."""
