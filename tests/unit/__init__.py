"""One room at a time: pure code or fakes, no sockets, no processes."""
