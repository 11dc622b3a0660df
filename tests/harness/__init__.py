"""Tools for tests: virtual time, unreliable networks, real servers and clients, a checker of histories."""
