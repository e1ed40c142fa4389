"""The process that exports telemetry: reads records from standard input, sends them by OTLP over HTTP."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

from ouro import __version__

EXPORT_SECONDS = 3
END_SECONDS = 10.0
"""How long the process lives after its last record, also if the collector hangs."""
_EVERY_MILLISECONDS = 2_000
"""The pause between two exports of spans. Counts only add up, so they are exported less often."""
_TOKEN_TYPES = ("input", "output")


class TelemetryExporter:
    """Exports the spans and counts of one session with the SDK of OpenTelemetry, whose standard
    variables name the collector.
    """

    def __init__(self) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        resource = Resource.create({"service.name": "ouro", "service.version": __version__})
        self._traces = TracerProvider(resource=resource, shutdown_on_exit=False)
        spans = OTLPSpanExporter(timeout=EXPORT_SECONDS)
        self._traces.add_span_processor(
            BatchSpanProcessor(spans, schedule_delay_millis=_EVERY_MILLISECONDS)
        )
        reader = PeriodicExportingMetricReader(
            OTLPMetricExporter(timeout=EXPORT_SECONDS),
            export_interval_millis=5 * _EVERY_MILLISECONDS,
        )
        self._meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        meter = self._meters.get_meter("ouro")
        self._usage = meter.create_histogram("gen_ai.client.token.usage", "{token}")
        self._tokens = meter.create_counter("ouro.tokens", "{token}")
        self._cost = meter.create_counter("ouro.cost", "USD")
        self._tracer = self._traces.get_tracer("ouro", __version__)
        self._turn: Any = None

    def add(self, record: dict[str, Any]) -> None:
        """Make spans and counts of one record. Its kind is `begin` or `end` of a turn, a `note`
        with attributes of the turn, or a `span` that has ended; its time is in nanoseconds.
        """
        attributes, time = record["attributes"], record["time"]
        match record["kind"]:
            case "begin":
                self._end_turn(time, {"error.type": "lost"})  # one whose end did not arrive
                self._turn = self._tracer.start_span(
                    record["name"], attributes=attributes, start_time=time
                )
            case "note" if self._turn is not None:
                self._turn.set_attributes(attributes)
            case "span":
                self._add_span(record, attributes, time)
            case "end":
                self._end_turn(time, attributes)

    def _add_span(self, record: dict[str, Any], attributes: dict[str, Any], end: int) -> None:
        """Add a span that has ended, below the turn; a model call is also counted."""
        from opentelemetry import trace

        kind = trace.SpanKind.CLIENT if record.get("client") else trace.SpanKind.INTERNAL
        parent = trace.set_span_in_context(self._turn) if self._turn is not None else None
        span = self._tracer.start_span(
            record["name"], parent, kind, attributes, start_time=record["start"]
        )
        _mark_error(span, attributes)
        span.end(end)
        if record.get("client"):
            self._count_usage(attributes)

    def _count_usage(self, attributes: dict[str, Any]) -> None:
        """Add the tokens and the cost of a model call to the metrics, as far as they are known."""
        names = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model")
        call_attributes = {name: attributes[name] for name in names}
        for kind in _TOKEN_TYPES:
            tokens = attributes.get(f"gen_ai.usage.{kind}_tokens")
            if tokens is not None:
                type_attributes = {**call_attributes, "gen_ai.token.type": kind}
                self._usage.record(tokens, type_attributes)
                self._tokens.add(tokens, type_attributes)
        if "ouro.cost" in attributes:
            self._cost.add(attributes["ouro.cost"], call_attributes)

    def _end_turn(self, end: int, attributes: dict[str, Any]) -> None:
        """Add attributes to the span of the turn, and end it at the time `end`. Nothing if no turn
        is open.
        """
        if self._turn is None:
            return
        self._turn.set_attributes(attributes)
        _mark_error(self._turn, attributes)
        self._turn.end(end)
        self._turn = None

    def close(self, end: int) -> None:
        """End an open turn at the time `end`, and send what was not sent yet, within END_SECONDS."""
        self._end_turn(end, {"error.type": "lost"})
        milliseconds = int(END_SECONDS * 1_000 / 2)  # half of it for spans, half for counts
        self._traces.force_flush(milliseconds)
        self._meters.force_flush(milliseconds)


def _mark_error(span: Any, attributes: dict[str, Any]) -> None:
    """Mark a span as failed if its attributes name an error."""
    from opentelemetry.trace import Status, StatusCode

    if "error.type" in attributes:
        span.set_status(Status(StatusCode.ERROR))


def main() -> None:
    """Export the records from standard input until it ends, then exit within END_SECONDS."""
    exporter, last = TelemetryExporter(), 0
    for line in sys.stdin:
        record = json.loads(line)
        last = record["time"]
        exporter.add(record)
    # Exits in any case: the threads of the SDK may hang with the collector.
    timer = threading.Timer(END_SECONDS, os._exit, (1,))
    timer.daemon = True
    timer.start()
    exporter.close(last)
    os._exit(0)


if __name__ == "__main__":
    main()
