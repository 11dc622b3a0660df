"""Use cases about people: receipts, typing, presence, contacts, blocks and the chat list."""
