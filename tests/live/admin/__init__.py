"""`redrive serve` as a process, asked by curl, on real brokers."""
