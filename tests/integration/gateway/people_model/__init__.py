"""A town of people on one server, what each of them must be told, and what they are told."""
