"""Coverage-guided fuzzing of the wire room: `python -m tests.fuzz`. See README.md here."""
