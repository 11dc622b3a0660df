"""The composition root: picks the engines of a server, puts it together, and is its life."""

from parley.app.node import App
from parley.app.process import serve

__all__ = ["App", "serve"]
