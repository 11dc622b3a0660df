"""Deliveries to others: queues, retries, dead letters and their replay; webhooks. See docs/delivery.md."""
