"""The composition root: the only room that names concrete engines, and the life of a server."""

from parley.app.node import App
from parley.app.serving import serve

__all__ = ["App", "serve"]
