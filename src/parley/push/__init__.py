"""Push: rings on devices that are not connected. See docs/push.md."""
