"""Shipped tools for tests: a history checker, a hostile network, virtual time, real server processes."""
