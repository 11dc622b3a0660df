"""Crashes, faults and hostile networks, randomised; rounds come from PARLEY_SIMULATE_ROUNDS."""
