"""What entries say: rewritten where they are stored, in every tier, and erased."""
