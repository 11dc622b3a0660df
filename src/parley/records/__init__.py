"""What the tables of records mean: each kind once, over the port `Records` of whichever engine there is."""
