"""The ``scalarintern`` command: presents what `scalarintern.tools` finds out."""
