"""What is kept of deliveries to others: lanes, dead letters, webhooks."""
