"""What must survive: ports here, one folder per engine."""
