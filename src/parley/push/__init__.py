"""Push: notifications on devices that are not connected. See docs/push.md."""
