"""Use cases: who may come in, and what people, operators and programs do with accounts."""
