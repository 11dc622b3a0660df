"""Deliveries to others: lanes, retries, dead letters and their replay; webhooks. See docs/delivery.md."""
