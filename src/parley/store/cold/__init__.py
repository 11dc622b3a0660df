"""What an engine keeps of entries that are in the cold tier."""
