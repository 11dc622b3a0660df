"""The worker that delivers to others, on virtual time."""
