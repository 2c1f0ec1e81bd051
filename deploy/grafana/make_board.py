#!/usr/bin/env python3
"""Writes spillway.json beside this file: Grafana's board for Spillway (import it, or mount it for provisioning).

    make_board.py [--check]      --check: exit 1 where spillway.json is not what this would write

One row of panels per question that an operator asks: is it well, how long do users wait, what does the scheduler do, does the KV
cache save work, are the GPUs well, what does the process take."""

import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "spillway.json")
BY = 'job=~"$job",instance=~"$instance"'  # every query is narrowed to the chosen servers


def q(expr, legend="{{instance}}"):
    return expr.replace("$BY", BY), legend


def quantiles(name):
    sums = "sum by (le) (rate(%s_bucket{$BY}[$__rate_interval]))" % name
    return [q("histogram_quantile(%s, %s)" % (p, sums), "p" + p[2:].ljust(2, "0")) for p in ("0.5", "0.95", "0.99")]


def rate(name, by, legend):
    return q("sum by (%s) (rate(%s{$BY}[$__rate_interval]))" % (by, name), legend)


ROWS = [
    ("Overview", [
        ("stat", "Servers that answer", "short", [q("sum(up{$BY})", "up")]),
        ("stat", "Requests/s", "reqps", [q("sum(rate(vllm:request_success_total{$BY}[$__rate_interval]))", "requests")]),
        ("stat", "Output tokens/s", "short", [q("sum(rate(vllm:generation_tokens_total{$BY}[$__rate_interval]))", "tokens")]),
        ("stat", "TTFT p95", "s", quantiles("vllm:time_to_first_token_seconds")[1:2]),
        ("stat", "ITL p95", "s", quantiles("vllm:inter_token_latency_seconds")[1:2]),
        ("stat", "5xx share", "percentunit", [q('sum(rate(http_requests_total{$BY,status="5xx"}[$__rate_interval])) / sum(rate(http_requests_total{$BY}[$__rate_interval]))', "5xx")]),
        ("stat", "Prompt tokens from the cache", "percentunit", [q("sum(rate(vllm:prompt_tokens_cached_total{$BY}[$__rate_interval])) / sum(rate(vllm:prompt_tokens_total{$BY}[$__rate_interval]))", "cached")]),
        ("stat", "Blocks that differed when computed again", "short", [q("sum(spillway:kv_audit_mismatch_total{$BY})", "mismatches")]),
    ]),
    ("Latency", [
        ("timeseries", "Time to first token", "s", quantiles("vllm:time_to_first_token_seconds")),
        ("timeseries", "Time between tokens", "s", quantiles("vllm:inter_token_latency_seconds")),
        ("timeseries", "Whole request", "s", quantiles("vllm:e2e_request_latency_seconds")),
        ("timeseries", "Waiting in the queue", "s", quantiles("vllm:request_queue_time_seconds")),
        ("timeseries", "Prefill and decode, p95", "s", [
            (quantiles("vllm:request_prefill_time_seconds")[1][0], "prefill"), (quantiles("vllm:request_decode_time_seconds")[1][0], "decode")]),
        ("timeseries", "HTTP answers by status", "reqps", [rate("http_requests_total", "status", "{{status}}")]),
    ]),
    ("Scheduler", [
        ("timeseries", "Running and waiting", "short", [
            q("sum by (instance) (vllm:num_requests_running{$BY})", "{{instance}} running"),
            q("sum by (instance) (vllm:num_requests_waiting{$BY})", "{{instance}} waiting")]),
        ("timeseries", "Tokens/s", "short", [
            rate("vllm:prompt_tokens_total", "job", "prompt"), rate("vllm:generation_tokens_total", "job", "output")]),
        ("timeseries", "Tokens in a step, mean", "short", [
            q("sum(rate(vllm:iteration_tokens_total_sum{$BY}[$__rate_interval])) / sum(rate(vllm:iteration_tokens_total_count{$BY}[$__rate_interval]))", "tokens")]),
        ("timeseries", "Time of a step", "s", quantiles("spillway:step_seconds")),
        ("timeseries", "How requests ended", "reqps", [rate("vllm:request_success_total", "finished_reason", "{{finished_reason}}")]),
        ("timeseries", "Preemptions/s", "short", [rate("vllm:num_preemptions_total", "instance", "{{instance}}")]),
    ]),
    ("KV tiers", [
        ("timeseries", "KV cache in use", "percentunit", [q("vllm:kv_cache_usage_perc{$BY}")]),
        ("timeseries", "Prefix tokens found", "percentunit", [
            q("sum(rate(vllm:prefix_cache_hits_total{$BY}[$__rate_interval])) / sum(rate(vllm:prefix_cache_queries_total{$BY}[$__rate_interval]))", "found")]),
        ("timeseries", "Blocks found below the device, per second", "short", [rate("spillway:kv_tier_hit_blocks_total", "tier", "{{tier}}")]),
        ("timeseries", "Bytes moved, per second", "Bps", [
            rate("spillway:kv_tier_written_bytes_total", "tier", "{{tier}} written"), rate("spillway:kv_tier_read_bytes_total", "tier", "{{tier}} read")]),
        ("timeseries", "Used of what is reserved", "percentunit", [
            q("sum by (tier) (spillway:kv_tier_used_bytes{$BY}) / (sum by (tier) (spillway:kv_tier_reserved_bytes{$BY}) > 0)", "{{tier}}")]),
        ("timeseries", "Time of a load, p95", "s", [
            q("histogram_quantile(0.95, sum by (le, tier) (rate(spillway:kv_load_seconds_bucket{$BY}[$__rate_interval]))) "
              "and on (tier) sum by (tier) (rate(spillway:kv_load_seconds_count{$BY}[$__rate_interval])) > 0", "{{tier}}")]),
        ("timeseries", "Evictions/s by reason", "short", [rate("spillway:kv_evictions_total", "tier, reason", "{{tier}} {{reason}}")]),
        ("timeseries", "Checks that failed", "short", [q("sum by (tier) (spillway:kv_tier_verify_failures_total{$BY})", "{{tier}}")]),
        ("timeseries", "Folders", "short", [q("sum by (state) (spillway:kv_folder_segments{$BY})", "{{state}}"), q("sum(spillway:kv_folders_paused{$BY})", "paused")]),
    ]),
    ("Devices", [  # where the driver's library is
        ("timeseries", "GPU in use", "percentunit", [q("spillway:gpu_utilization{$BY}", "{{instance}} gpu {{gpu}}")]),
        ("timeseries", "GPU memory in use", "percentunit", [q("spillway:gpu_memory_used_bytes{$BY} / spillway:gpu_memory_total_bytes{$BY}", "{{instance}} gpu {{gpu}}")]),
        ("timeseries", "Power", "watt", [q("spillway:gpu_power_watts{$BY}", "{{instance}} gpu {{gpu}}")]),
        ("timeseries", "Temperature", "celsius", [q("spillway:gpu_temperature_celsius{$BY}", "{{instance}} gpu {{gpu}}")]),
        ("timeseries", "GPUs whose clocks are held down, by reason", "short", [q("sum by (reason) (spillway:gpu_throttled{$BY})", "{{reason}}")]),
        ("timeseries", "Memory errors, and rows of memory", "short", [
            q("sum by (kind) (spillway:gpu_ecc_errors_total{$BY})", "{{kind}}"), q("sum by (state) (spillway:gpu_remapped_rows{$BY})", "rows {{state}}")]),
        ("timeseries", "XIDs", "short", [q("sum by (instance, gpu) (spillway:gpu_xid_errors_total{$BY})", "{{instance}} gpu {{gpu}}")]),
        ("timeseries", "The last XID", "none", [q("spillway:gpu_last_xid{$BY}", "{{instance}} gpu {{gpu}}")]),
        ("timeseries", "GPUs that are lost, and age of these numbers", "short", [
            q("sum by (instance) (spillway:gpu_lost{$BY})", "{{instance}} lost"), q("max by (instance) (spillway:gpu_sample_age_seconds{$BY})", "{{instance}} age in seconds")]),
    ]),
    ("Process", [
        ("timeseries", "CPU", "short", [q("rate(process_cpu_seconds_total{$BY}[$__rate_interval])")]),
        ("timeseries", "Resident memory", "bytes", [q("process_resident_memory_bytes{$BY}")]),
        ("timeseries", "Connections", "short", [q("spillway:connections{$BY}")]),
        ("timeseries", "File descriptors in use", "percentunit", [q("process_open_fds{$BY} / process_max_fds{$BY}")]),
        ("timeseries", "Refused keys/s", "short", [rate("spillway:auth_failures_total", "reason", "{{reason}}")]),
        ("timeseries", "Readers that are too slow, per second", "short", [rate("spillway:slow_reader_pauses_total", "instance", "{{instance}}")]),
    ]),
]
SOURCE = {"type": "prometheus", "uid": "${source}"}


def panel(number, kind, title, unit, queries, x, y, w, h):
    fields = {"defaults": {"unit": unit, "min": 0}, "overrides": []}
    if kind == "timeseries":
        fields["defaults"]["custom"] = {"fillOpacity": 10, "showPoints": "never"}
    p = {"id": number, "type": kind, "title": title, "datasource": SOURCE, "gridPos": {"x": x, "y": y, "w": w, "h": h}, "fieldConfig": fields,
         "targets": [{"refId": chr(65 + i), "expr": e, "legendFormat": legend, "datasource": SOURCE} for i, (e, legend) in enumerate(queries)]}
    if kind == "stat":
        p["options"] = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "none", "graphMode": "area"}
    return p


def choice(name, label, query):
    return {"name": name, "label": label, "type": "query", "datasource": SOURCE, "query": {"query": query, "refId": name}, "refresh": 2, "multi": True,
            "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}, "sort": 1}


def board():
    panels, y, number = [], 0, 0
    for title, row in ROWS:
        number += 1
        panels.append({"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}, "panels": []})
        y += 1
        width, height = (3, 4) if row[0][0] == "stat" else (8, 8)
        for i, (kind, name, unit, queries) in enumerate(row):
            number += 1
            panels.append(panel(number, kind, name, unit, queries, i * width % 24, y + i * width // 24 * height, width, height))
        y += (len(row) * width + 23) // 24 * height
    return {"uid": "spillway", "title": "Spillway", "tags": ["spillway", "llm"], "schemaVersion": 39, "version": 1, "editable": True, "refresh": "10s",
            "time": {"from": "now-1h", "to": "now"}, "timezone": "browser", "graphTooltip": 1, "panels": panels,
            "templating": {"list": [
                {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {}},
                choice("job", "Job", "label_values(spillway:build_info, job)"),
                choice("instance", "Server", 'label_values(spillway:build_info{job=~"$job"}, instance)')]}}


def main():
    text = json.dumps(board(), indent=1) + "\n"
    if "--check" in sys.argv[1:]:
        with open(OUT) as f:
            return 0 if f.read() == text else 1
    with open(OUT, "w") as f:
        f.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
