"""Durable storage: the ports are here, each engine has a folder."""
