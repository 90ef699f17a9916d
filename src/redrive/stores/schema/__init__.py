"""The tables: how the two databases differ, and each version of the schema with the way from one to the next.

`dialect` lets one SQL text serve SQLite and PostgreSQL, `migrations` brings a database up to date, `versions/` has one
module for each version.
"""
