"""The protocol: frames, HTTP bodies, limits and close codes, as pure values with their codecs."""
