"""Use cases: what people do with chats. They await ports and never name an engine."""
