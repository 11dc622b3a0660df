"""What travels: frames, refusals, limits and close codes, as pure values with two codecs."""
