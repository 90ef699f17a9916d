"""What an author declares: `redrive.yaml`, the same in Python, and the JSON Schema of both."""
