"""Redrive: retries and dead letters for RabbitMQ."""
