"""A telemetry's metrics as Prometheus' own parser reads them."""

from prometheus_client.parser import text_string_to_metric_families

from redrive.telemetry import Telemetry


def samples(telemetry: Telemetry) -> dict[str, float]:
    """Every sample as the reference parser reads it: `name{label=value,…}`."""
    return {
        sample.name + "".join(f"|{key}={value}" for key, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(telemetry.metrics.exposition())
        for sample in family.samples
    }
