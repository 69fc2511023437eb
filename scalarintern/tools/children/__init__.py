"""Programs that the tools start in a fresh process.

Each is run by path, imports nothing of this package unless told to, and needs only the DSL and
what scalarintern itself depends on: it must run in an environment without the ``cli`` extra. It
writes one JSON object a line to what was its standard output, and sends anything that the DSL
prints there to standard error.
"""
