"""A real server process over real sockets: the named scenarios of the design."""
