"""The routes of `/api/v1`, health and metrics: one module per subject, each with a `router`."""
