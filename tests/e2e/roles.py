#!/usr/bin/env python3
"""Prefill and decode on two servers (--role): this script plays the routing sidecar, which asks one for the prompt and the other to go on.

    roles.py [--preset check]

Every answer is compared, text, token ids and logprobs bit for bit, with that of a server alone. Each side is killed and stopped
between the two calls; parameters are forged, replayed, and sent by another tenant.
SPILLWAY_ROLE_ROUNDS=N: more requests. One line each, then
`N passed, N failed, N skipped`."""
# Under sanitizers: in ./check all. Parcels and peers have tests of the labels unit and peer that always run there.

import json
import os
import random
import re
import signal
import socket
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fault"))

import scratch
from peers import SANITIZED, connected, lines, ports  # noqa: E402
from tiers import BASE, World, arguments, metric, run_named, settle, start  # noqa: E402

HOST = BASE + ["--kv-cache-bytes", "16MiB", "--kv-host-gib", "0.05"]
ROUNDS = int(os.environ.get("SPILLWAY_ROLE_ROUNDS", "6"))  # requests of each of four clients
FREED_S = 5  # on both sides, whatever happened
NOTHING = {"remote_engine_id": None, "remote_block_ids": None, "remote_host": None, "remote_port": None}
TESTS = []


def test(fn):
    TESTS.append(fn)
    return fn


# ---- the sidecar


def prefill(p, path, body, headers=None):
    """The first leg, as the sidecar sends it: returns what its answer says of the blocks."""
    leg = {k: v for k, v in body.items() if k not in ("min_tokens", "stream_options")}
    leg.update(max_tokens=1, stream=False, kv_transfer_params={"do_remote_decode": True, "do_remote_prefill": False, **NOTHING})
    if "max_completion_tokens" in body:
        leg["max_completion_tokens"] = 1
    r = p.post(path, leg, headers=headers or {})
    assert r.status == 200, r
    return r.json["kv_transfer_params"]


def decode(d, path, body, params, headers=None):
    r = d.post(path, {**body, "kv_transfer_params": params}, headers={"x-request-id": "leg-two", **(headers or {})})
    assert r.status == 200, r
    return r


def choices(r):
    """What an answer says, streamed or not: per choice its token ids, logprobs, text and end."""
    if not r.body.startswith(b"data:"):
        return [(c["token_ids"], c["logprobs"], c.get("text") or c.get("message"), c["finish_reason"]) for c in r.json["choices"]]
    out = {}
    for line in r.body.split(b"\n\n"):
        if not line.startswith(b"data: {"):
            continue
        for c in json.loads(line[6:])["choices"]:
            got = out.setdefault(c["index"], [[], [], "", None])
            got[0] += c.get("token_ids") or []
            if c.get("logprobs"):
                got[1].append(c["logprobs"])
            got[2] += c.get("text") or c.get("delta", {}).get("content") or ""
            got[3] = c["finish_reason"] or got[3]
    return [out[i] for i in sorted(out)]


def body(k, **more):
    rng = random.Random(k)
    return {"prompt": [rng.randrange(300, 3000) for _ in range(300 + 13 * (k % 7))], "max_tokens": 8, "temperature": 0.8, "seed": 40 + k,
            "ignore_eos": True, "return_token_ids": True, "logprobs": 2, **more}


def chat(k, **more):
    words = " ".join("word%d" % random.Random(k * 100 + i).randrange(999) for i in range(80))
    return {"messages": [{"role": "system", "content": words}, {"role": "user", "content": "go on"}], "max_tokens": 8, "temperature": 0.7,
            "seed": k, "return_token_ids": True, "logprobs": True, "top_logprobs": 3, **more}


# ---- what the servers say


def pulls(d, how):
    return metric(d, "spillway:pd_pulls_total", 'result="%s"' % how)


def ends(d):
    """How the pulls ended, for messages."""
    with_name = [x for x in d.get("/metrics").body.decode().splitlines() if x.startswith("spillway:pd_pulls_total{")]
    return {re.search('result="(\\w+)"', x).group(1): float(x.rsplit(" ", 1)[1]) for x in with_name}


def parcels(p, event):
    return metric(p, "spillway:pd_parcels_total", 'event="%s"' % event)


def alone(w, *more):
    from harness import Server
    if not w.plain:
        w.plain = Server(*BASE, "--enable-prefix-caching=false", *more)
    return w.plain


def check(w, d, path, b, params):
    """The second leg's answer is that of a server alone."""
    assert choices(decode(d, path, b, params)) == choices(alone(w).post(path, b)), b


def freed(*servers):
    from harness import eventually
    eventually(lambda: all(metric(s, "spillway:pd_kept_blocks") == 0 for s in servers), "giving up what is kept", FREED_S)


def pair(w, *more, p_more=(), d_more=()):
    at = ports(1)[0]
    p = start(w, *HOST, "--role", "prefill", "--kv-peer-listen", "127.0.0.1:%d" % at, *more, *p_more)
    d = start(w, *HOST, "--role", "decode", "--kv-peer", "127.0.0.1:%d" % at, *more, *d_more)
    connected(d)
    return p, d, at


# ---- the tests


@test
def one_computes_the_prompt_and_the_other_goes_on(w):
    p, d, at = pair(w)
    cases = [("/v1/completions", body(1)), ("/v1/completions", body(2, stream=True)), ("/v1/completions", body(3, n=3)),
             ("/v1/completions", body(4, n=2, stream=True, stream_options={"include_usage": True}, min_tokens=4)),
             ("/v1/chat/completions", chat(5)), ("/v1/chat/completions", chat(6, stream=True)),
             ("/v1/chat/completions", chat(7, n=2, max_completion_tokens=6))]
    for path, b in cases:
        before = pulls(d, "pulled")
        params = prefill(p, path, b)
        assert params["do_remote_prefill"] is True and params["do_remote_decode"] is False
        assert params["remote_host"] == "127.0.0.1" and params["remote_port"] == at and params["tp_size"] == 1
        assert len(params["remote_block_ids"]) >= 10 and all(type(i) is int for i in params["remote_block_ids"])
        assert type(params["remote_engine_id"]) is str and type(params["remote_request_id"]) is str
        check(w, d, path, b, params)
        assert pulls(d, "pulled") == before + 1, (path, b)
    settle(p, "hearing that they were taken", lambda: parcels(p, "taken") == len(cases))
    freed(p)
    assert parcels(p, "made") == len(cases) and parcels(p, "lapsed") == parcels(p, "refused") == 0
    assert metric(d, "spillway:kv_verify_failures_total") == 0
    assert not p.error_lines() and not d.error_lines()
    p.stop(), d.stop()


@test
def a_prompt_of_less_than_a_block_has_nothing_to_pull(w):
    p, d, _ = pair(w)
    b = {**body(1), "prompt": [400, 401, 402]}
    params = prefill(p, "/v1/completions", b)
    assert params["remote_block_ids"] == []
    check(w, d, "/v1/completions", b, params)
    assert pulls(d, "here") == 1
    p.stop(), d.stop()


def recomputed(d):
    return pulls(d, "no_peer") + pulls(d, "lost") + pulls(d, "missing")


@test
def the_prefill_server_dies_or_stops_between_the_calls(w):
    from harness import freeze
    p, d, at = pair(w)
    b = body(20)
    params = prefill(p, "/v1/completions", b)
    freeze(p.proc.pid)
    check(w, d, "/v1/completions", b, params)
    assert (pulls(d, "pulled"), recomputed(d)) == (0, 1), (pulls(d, "pulled"), recomputed(d))
    p.proc.send_signal(signal.SIGCONT)
    freed(p)
    b = body(21)
    params = prefill(p, "/v1/completions", b)
    p.proc.kill()
    p.proc.wait()
    check(w, d, "/v1/completions", b, params)
    assert (pulls(d, "pulled"), recomputed(d)) == (0, 2), (pulls(d, "pulled"), recomputed(d))
    n = lines(d, " is connected over ")  # it may have found the one that stood again
    p = start(w, *HOST, "--role", "prefill", "--kv-peer-listen", "127.0.0.1:%d" % at)
    connected(d, n + 1)
    b = body(22)
    check(w, d, "/v1/completions", b, prefill(p, "/v1/completions", b))
    assert pulls(d, "pulled") == 1
    b = body(23)  # with the id of the server that was killed: what that one kept is gone
    check(w, d, "/v1/completions", b, {**prefill(p, "/v1/completions", b), "remote_engine_id": params["remote_engine_id"]})
    assert pulls(d, "no_peer") >= 1
    assert d.get("/health").status == 200
    freed(p, d)
    p.stop(), d.stop()


@test
def the_decode_server_dies_and_the_client_goes(w):
    p, d, at = pair(w)
    prefill(p, "/v1/completions", body(40))  # and nobody comes: the client went away between the legs
    assert metric(p, "spillway:pd_kept_blocks") > 0
    freed(p)
    assert parcels(p, "lapsed") == 1
    for k in range(3):  # the client of the second leg hangs up: before, while and after its blocks come
        b = body(41 + k, max_tokens=400)
        params = prefill(p, "/v1/completions", b)
        data = json.dumps({**b, "kv_transfer_params": params}).encode()
        with socket.create_connection(("127.0.0.1", d.port)) as s:
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
            time.sleep(0.01 * k)
        settle(d, "hearing of it", lambda: metric(d, "vllm:num_requests_running") + metric(d, "vllm:num_requests_waiting") == 0)
    freed(p)
    b = body(45, max_tokens=400)
    data = json.dumps({**b, "kv_transfer_params": prefill(p, "/v1/completions", b)}).encode()
    with socket.create_connection(("127.0.0.1", d.port)) as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        d.proc.kill()
        d.proc.wait()
    freed(p)
    assert p.get("/health").status == 200
    d = start(w, *HOST, "--role", "decode", "--kv-peer", "127.0.0.1:%d" % at)
    connected(d)
    b = body(46)
    check(w, d, "/v1/completions", b, prefill(p, "/v1/completions", b))
    assert pulls(d, "pulled") == 1, ends(d)
    p.stop(), d.stop()


@test
def many_at_once_over_two_prefill_servers_one_of_which_dies(w):
    at = ports(2)
    servers = [start(w, *HOST, "--role", "prefill", "--kv-peer-listen", "127.0.0.1:%d" % a) for a in at]
    d = start(w, *HOST, "--role", "decode", *[x for a in at for x in ("--kv-peer", "127.0.0.1:%d" % a)])
    connected(d, 2)
    want = {k: choices(alone(w).post("/v1/completions", body(100 + k))) for k in range(12)}
    bad = []

    def work(i):
        rng = random.Random(i)
        for n in range(ROUNDS):
            k = rng.randrange(12)
            b = body(100 + k, stream=bool(rng.randrange(2)))
            try:
                params = prefill(servers[(i + n) % 2], "/v1/completions", b)
            except OSError:
                params = None  # the sidecar then leaves all of it to the decode server
            got = choices(decode(d, "/v1/completions", b, params))
            if [c[0] for c in got] != [c[0] for c in want[k]]:
                bad.append((k, got))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    settle(d, "pulling", lambda: pulls(d, "pulled") >= 4)
    servers[1].proc.kill()
    servers[1].proc.wait()
    for t in threads:
        t.join()
    assert not bad, bad
    assert metric(d, "spillway:kv_verify_failures_total") == 0
    freed(servers[0], d)
    assert not d.error_lines()
    servers[0].stop(), d.stop()


@test
def a_burst_is_pulled_not_computed(w):
    """All of it, but for what a slow machine computed so late that nobody had claimed the first ones in time."""
    p, d, _ = pair(w, "--kv-cache-bytes", "64MiB")
    n = 18 if SANITIZED else 24  # more than loads at a time (KV_LOADS_MAX)
    for first in (200,) if SANITIZED else (200, 300, 400):
        if burst(w, p, d, first, n) == 0:
            break
    p.stop(), d.stop()


def burst(w, p, d, first, n):
    """n requests at once. Returns how many of their parcels lapsed before they were claimed."""
    bodies = [body(first + k) for k in range(n)]
    want = [choices(alone(w).post("/v1/completions", b))[0][0] for b in bodies]
    pulled, lapsed = pulls(d, "pulled"), parcels(p, "lapsed")
    params = [prefill(p, "/v1/completions", b) for b in bodies]
    assert all(len(x["remote_block_ids"]) > 15 for x in params)
    bad = []

    def leg(k):
        if choices(decode(d, "/v1/completions", bodies[k], params[k]))[0][0] != want[k]:
            bad.append(k)

    threads = [threading.Thread(target=leg, args=(k,)) for k in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not bad, bad
    freed(p)
    lapsed = parcels(p, "lapsed") - lapsed
    assert pulls(d, "pulled") - pulled + lapsed >= n, [lapsed, *((how, pulls(d, how)) for how in ("pulled", "missing", "lost"))]
    return lapsed


@test
def parameters_that_are_stale_or_of_others_cost_time_alone(w):
    keys = os.path.join(w.folder, "keys")
    with open(keys, "w") as f:
        f.write("key-of-one\nkey-of-two\n")
    mac = os.path.join(w.folder, "mac")
    with open(mac, "wb") as f:
        f.write(b"a secret of all servers, long enough")
    p, d, _ = pair(w, "--api-key-file", keys, "--kv-mac-key-file", mac)
    one, two = {"authorization": "Bearer key-of-one"}, {"authorization": "Bearer key-of-two"}
    b = body(50)
    want = choices(alone(w).post("/v1/completions", b))
    params = prefill(p, "/v1/completions", b, one)
    # another tenant with the same prompt: it computes, and cannot end what is kept for the first one
    assert choices(decode(d, "/v1/completions", b, params, two)) == want
    assert pulls(d, "missing") == 1 and parcels(p, "taken") == 0
    assert choices(decode(d, "/v1/completions", b, params, one)) == want
    assert pulls(d, "pulled") == 1
    freed(p)
    assert parcels(p, "taken") == 1
    assert choices(decode(d, "/v1/completions", b, params, one)) == want  # replayed: it is here by now
    assert pulls(d, "here") == 1
    b = body(51)  # another prompt, which the peer does not have
    assert choices(decode(d, "/v1/completions", b, params, one)) == choices(alone(w).post("/v1/completions", b))
    assert pulls(d, "missing") + pulls(d, "mismatch") == 2
    assert metric(d, "spillway:kv_verify_failures_total") == 0
    p.stop(), d.stop()


@test
def a_sidecar_may_ask_the_decode_server_first(w):
    """llm-d's flow with cache_hit_threshold: decode; if too little is cached there, prefill, then decode."""
    p, d, _ = pair(w)
    for k, (path, b) in enumerate([("/v1/completions", body(90)), ("/v1/completions", body(91, n=2, stream=True)),
                                   ("/v1/chat/completions", chat(92)), ("/v1/chat/completions", chat(93, stream=True))]):
        want = choices(alone(w).post(path, b))
        first = {**b, "cache_hit_threshold": 0.5}
        r = d.post(path, first)
        assert r.status == 200, r
        assert [(list(c[0]), c[3]) for c in choices(r)] == [([], "cache_threshold")] * len(want), r
        assert metric(d, "vllm:request_success_total", 'finished_reason="cache_threshold"') == k + 1
        params = prefill(p, path, first)  # the prefill server computes whatever it has
        r = decode(d, path, {**b, "cache_hit_threshold": 0}, params)
        assert choices(r) == want, r
        assert choices(d.post(path, first)) == want  # now it is here
        r = d.post(path, {**b, "cache_hit_threshold": 1})
        assert choices(r) == want, r
    assert pulls(d, "pulled") == 4
    b = body(94)  # with parameters of a parcel that holds something else: refused, not computed
    computed = metric(d, "vllm:prompt_tokens_total")
    r = decode(d, "/v1/completions", {**b, "cache_hit_threshold": 0.2}, params)
    assert choices(r)[0][3] == "cache_threshold", r
    assert metric(d, "vllm:prompt_tokens_total") == computed
    freed(p, d)
    r = d.post("/v1/completions", {**b, "cache_hit_threshold": 2})
    assert r.status == 400 and r.json["error"]["param"] == "cache_hit_threshold", r
    p.stop(), d.stop()


@test
def an_address_in_a_request_is_never_connected_to(w):
    p, d, _ = pair(w)
    trap = socket.socket()
    trap.bind(("127.0.0.1", 0))
    trap.listen()
    trap.settimeout(1.5)
    b = body(60)
    params = prefill(p, "/v1/completions", b)
    for engine in (params["remote_engine_id"], "ab" * 16):
        forged = {**params, "remote_host": "127.0.0.1", "remote_port": trap.getsockname()[1], "remote_engine_id": engine}
        check(w, d, "/v1/completions", b, forged)
        b = body(61)
    assert pulls(d, "pulled") == 1 and pulls(d, "no_peer") == 1  # by its id, where the options say it is; or not at all
    try:
        trap.accept()
        raise AssertionError("a client's words made the server connect")
    except socket.timeout:
        pass
    p.stop(), d.stop()


@test
def another_model_is_no_peer(w):
    from harness import Server
    at = ports(1)[0]
    p = start(w, *HOST, "--role", "prefill", "--kv-peer-listen", "127.0.0.1:%d" % at, "--block-size", "32")
    d = start(w, *HOST, "--role", "decode", "--kv-peer", "127.0.0.1:%d" % at)
    settle(d, "refusing", lambda: lines(d, "it serves another model, or holds blocks of another kind") > 0)
    b = body(70)
    check(w, d, "/v1/completions", b, prefill(p, "/v1/completions", b))
    assert pulls(d, "no_peer") == 1
    freed(p)
    p.stop(), d.stop()
    for extra, word in ((["--role", "prefill"], "--kv-peer-listen"), (["--role", "decode"], "--kv-peer"), (["--role", "sidecar"], "prefill")):
        s = Server(*HOST, *extra, wait=False)
        assert s.proc.wait(180) == 64 and word in s.tail(), (extra, s.tail())
        s.stop()


@test
def malformed_parameters_are_told_of(w):
    p, d, _ = pair(w)
    b = body(80, max_tokens=1)
    good = prefill(p, "/v1/completions", b)
    pull = {"do_remote_prefill": True}
    bad = [([], ""), ("x", ""), ({"do_remote_prefill": 1}, "do_remote_prefill"), ({**good, "do_remote_decode": True}, ""),
           ({**good, "remote_engine_id": "7b"}, "remote_engine_id"), ({**good, "remote_engine_id": None}, "remote_engine_id"),
           ({**good, "remote_engine_id": "g" * 32}, "remote_engine_id"), ({**good, "remote_request_id": 7}, "remote_request_id"),
           ({**good, "remote_block_ids": "1"}, "remote_block_ids"), ({**good, "remote_block_ids": [-1]}, "remote_block_ids"),
           ({**good, "remote_block_ids": [1.5]}, "remote_block_ids"), ({**good, "remote_host": 5}, "remote_host"),
           ({**good, "remote_host": "h" * 300}, "remote_host"), ({**good, "remote_port": 70000}, "remote_port"),
           ({**good, "remote_port": "80"}, "remote_port"), ({**good, "tp_size": 0}, "tp_size"), (pull, "remote_engine_id"),
           ({"do_remote_decode": True}, "do_remote_decode")]
    for params, field in bad:
        r = d.post("/v1/completions", {**b, "kv_transfer_params": params})
        param = "kv_transfer_params" + ("." + field if field else "")
        assert r.status == 400 and r.json["error"]["param"] == param, (params, r)
        assert param in r.json["error"]["message"], r
    assert p.post("/v1/completions", {**b, "kv_transfer_params": good}).status == 400  # its role
    r = p.post("/v1/completions", {**b, "stream": True, "kv_transfer_params": {"do_remote_decode": True}})
    assert r.status == 400 and r.json["error"]["param"] == "stream", r
    r = alone(w).post("/v1/completions", {**b, "kv_transfer_params": {"do_remote_decode": True}})
    assert r.status == 400 and "--kv-peer-listen" in r.json["error"]["message"], r
    for harmless in (None, {}, {"do_remote_prefill": False, "do_remote_decode": None, "of_others": [1]}):
        assert d.post("/v1/completions", {**b, "kv_transfer_params": harmless}).status == 200
    forged = {**good, "remote_block_ids": list(range(500))}  # more blocks than the prompt has
    assert d.post("/v1/completions", {**b, "kv_transfer_params": forged}).status == 200
    assert pulls(d, "mismatch") == 1
    assert d.get("/health").status == 200 and p.get("/health").status == 200
    p.stop(), d.stop()


def main():
    a = arguments(__doc__)
    return run_named(TESTS, World(1), a.names)


if __name__ == "__main__":
    scratch.run(main)
