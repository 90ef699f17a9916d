"""The five documents' flows as their authors wrote them, on real brokers."""
