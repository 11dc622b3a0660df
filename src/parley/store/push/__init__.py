"""What an engine keeps for push. See docs/push.md."""
