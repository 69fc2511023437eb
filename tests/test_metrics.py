"""The figures for loggers and for Prometheus."""

from __future__ import annotations

import urllib.request

import pytest
from cli_support import needs, python

import scalarintern
from scalarintern import metrics


def test_a_flat_mapping_of_numbers():
    """Names begin with the prefix, values are floats; hits are there only if counted."""
    figures = metrics.stats_dict()

    assert all(name.startswith("scalarintern/") for name in figures)
    assert all(type(value) is float for value in figures.values())
    assert figures["scalarintern/misses"] == scalarintern.stats().misses
    assert ("scalarintern/hits" in figures) == (scalarintern.stats().hits is not None)
    assert "live" in metrics.stats_dict(prefix="")


def test_resident_memory():
    """Resident memory of a Python process lies between 5 MB and 100 GB."""
    assert 5e6 < metrics.resident_bytes() < 1e11


@needs("prometheus_client")
def test_prometheus_scrapes_it():
    """A scrape over HTTP gives counters and gauges with their help texts."""
    import prometheus_client

    registry = prometheus_client.CollectorRegistry()
    metrics.ScalarInternCollector().register(registry)
    server, thread = prometheus_client.start_http_server(0, "127.0.0.1", registry)
    try:
        port = server.server_port
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            said = answer.read().decode()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

    assert "# TYPE scalarintern_misses_total counter" in said
    assert "# TYPE scalarintern_retained gauge" in said
    assert "# TYPE scalarintern_installed gauge" in said
    assert f"scalarintern_live {float(scalarintern.stats().live)}" in said
    assert "# HELP scalarintern_bytes Estimated memory" in said


def test_without_the_client_the_message_says_what_to_install():
    """Registering without prometheus_client names the extra."""
    code = (
        "import sys; sys.modules['prometheus_client'] = None; from scalarintern import metrics; "
        "metrics.ScalarInternCollector().register()"
    )

    done = python("-c", code)

    assert "pip install 'scalarintern[metrics]'" in done.stderr


@needs("prometheus_client")
def test_registering_twice_is_refused():
    """The client notices a second collector of the same names."""
    import prometheus_client

    registry = prometheus_client.CollectorRegistry()
    metrics.ScalarInternCollector().register(registry)

    with pytest.raises(ValueError, match="Duplicated"):
        metrics.ScalarInternCollector().register(registry)
