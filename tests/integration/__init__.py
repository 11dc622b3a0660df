"""Several rooms together in one process: a real store, a real gateway."""
