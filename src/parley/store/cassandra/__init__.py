"""The Cassandra engine. See docs/the-log-on-cassandra.md."""
