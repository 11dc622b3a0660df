"""The gateway over real sockets."""
