"""What may be lost, on a real Redis that is killed, paused, emptied and misconfigured."""
