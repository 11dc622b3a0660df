"""Benchmarks of the engines that nodes share: DynamoDB, Kafka and Redis, all on this machine."""
