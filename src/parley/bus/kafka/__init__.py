"""The bus that many nodes share, on Kafka."""
