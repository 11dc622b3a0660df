"""Nodes that work together: who is alive, whose chat is whose, and calls between them."""
