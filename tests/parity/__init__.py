"""Compares scalars of the stock DSL with interned ones, each in a process of its own."""
