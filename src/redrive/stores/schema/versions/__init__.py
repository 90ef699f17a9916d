"""One module for each version of the schema: the statements that make it from the version before."""
