"""A server without sockets or time, people around it, and a network that hurts: for cores in any language."""
