"""What may be lost: who is connected where, who is present, how fast somebody is."""
