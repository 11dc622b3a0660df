"""The bus of a cluster, on Kafka."""
