"""Sockets: one port for HTTP and WebSocket, connections, and the hub that fans out."""
