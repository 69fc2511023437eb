"""What the command line shows, as functions that return records.

Nothing in here prints, and nothing in here needs the ``cli`` extra, so a program can use it too.
`scalarintern.cli` presents what these modules return.
"""
