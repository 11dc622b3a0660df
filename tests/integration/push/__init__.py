"""Providers of push over real sockets, with servers of the tests that check what they get."""
