"""Collecting: dead letters move from their queues into the store, and none is lost or stored twice unnoticed.

`sources` decides which queues are dead-letter queues. `collector` runs one `collect_loop` per queue: take a batch
(`batches`, the next one ahead of time by `batch_prefetch`), store it (`arrivals`, `fingerprints`), ack it.
`reconciliation` decides after a crash which messages of a batch are stored already.
"""
