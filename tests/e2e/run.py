#!/usr/bin/env python3
"""End to end: the real server, the official `openai` client, streaming and not, alone and 64 at once.

    run.py [--preset dev] [--quick] [--but NAME] [--args "--tensor-parallel-size 2"] [name ...]

--quick: the tests that need no openai package. --but: all but this one. Each test is a function `test_*` that takes the server; one line each, then
`N passed, N failed, N skipped`.

Over 500 lines: a list of tests of one server, which is started once."""

import argparse
import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fault"))

import scratch

TESTS = []


class Skip(Exception):
    pass


def test(fn):
    TESTS.append((fn, False))
    return fn


def sdk(fn):
    """Needs the openai package."""
    TESTS.append((fn, True))
    return fn


MSG = [{"role": "user", "content": "What is the capital of France?"}]


def client(s, **kw):
    import openai

    return openai.OpenAI(base_url="http://127.0.0.1:%d/v1" % s.port, api_key="none", max_retries=0, timeout=300, **kw)


# ---- plain HTTP ------------------------------------------------------------------------------------------------------


@test
def a_chat_is_answered(s):
    r = s.post("/v1/chat/completions", {"messages": MSG, "temperature": 0})
    assert r.status == 200, r
    d = r.json
    assert d["object"] == "chat.completion" and d["choices"][0]["message"]["role"] == "assistant"
    assert d["choices"][0]["finish_reason"] == "stop", d
    assert "Paris" in d["choices"][0]["message"]["content"], d
    u = d["usage"]
    assert u["total_tokens"] == u["prompt_tokens"] + u["completion_tokens"] and "cached_tokens" in u["prompt_tokens_details"]


def events(body):
    out = []
    for block in body.decode().split("\n\n"):
        if block.startswith("data: "):
            out.append(block[6:])
        else:
            assert not block or block.startswith(":"), "not an event: %r" % block
    return out


@test
def a_stream_has_role_first_and_done_last(s):
    r = s.post("/v1/chat/completions", {"messages": MSG, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}})
    assert r.status == 200 and r.header("content-type").startswith("text/event-stream"), r
    ev = events(r.body)
    assert ev[-1] == "[DONE]"
    chunks = [json.loads(e) for e in ev[:-1]]
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert len({c["id"] for c in chunks}) == 1 and len({c["created"] for c in chunks}) == 1
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] > 0
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"])
    whole = s.post("/v1/chat/completions", {"messages": MSG, "temperature": 0}).json
    assert text == whole["choices"][0]["message"]["content"]
    assert chunks[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]


@test
def the_second_time_the_prefix_is_cached(s):
    prompt = "Tell me about the old mill by the river, the miller and his seven children, who all lived there happily for many years. " * 3
    a = s.complete(prompt, max_tokens=8, temperature=0).json
    b = s.complete(prompt, max_tokens=8, temperature=0).json
    assert b["usage"]["prompt_tokens_details"]["cached_tokens"] > 0, b["usage"]
    assert a["choices"][0]["text"] == b["choices"][0]["text"]


@test
def a_prompt_that_leaves_another_inside_a_block_goes_on_there(s):
    ids = [300 + i for i in range(44)]
    cold = s.complete(ids[:20] + [99] * 12 + ids[32:], max_tokens=4, temperature=0, cache_salt="cold").json
    s.complete(ids, max_tokens=4, temperature=0, cache_salt="warm")
    warm = s.complete(ids[:20] + [99] * 12 + ids[32:], max_tokens=4, temperature=0, cache_salt="warm").json
    assert cold["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, cold["usage"]
    assert warm["usage"]["prompt_tokens_details"]["cached_tokens"] == 20, warm["usage"]  # a block of 16, and 4 of the next
    assert warm["choices"][0]["text"] == cold["choices"][0]["text"]


@test
def a_pin_is_granted_and_reported(s):
    ids = [300 + i for i in range(40)]
    r = s.complete(ids, max_tokens=1, kv_pin=2, kv_priority=9, prompt_cache_retention="24h", prompt_cache_key="e2e", cache_salt="pin")
    assert r.json["usage"]["prompt_tokens_details"]["pinned_tokens"] == 32, r.json["usage"]
    assert "pinned_tokens" not in s.complete(ids, max_tokens=1).json["usage"]["prompt_tokens_details"]
    r = s.complete(ids, max_tokens=1, kv_pin="long")
    assert r.status == 400 and r.json["error"]["param"] == "kv_pin", r


@test
def a_stop_string_is_never_shown(s):
    full = s.complete("Count from one to ten: one, two, three,", max_tokens=40, temperature=0, ignore_eos=True).json["choices"][0]["text"]
    stop = full[9:13]
    for stream in (False, True):
        r = s.complete("Count from one to ten: one, two, three,", max_tokens=40, temperature=0, ignore_eos=True, stop=[stop], stream=stream)
        if stream:
            chunks = [json.loads(e) for e in events(r.body)[:-1]]
            text = "".join(c["choices"][0]["text"] for c in chunks if c["choices"])
            last = chunks[-1]["choices"][0]
        else:
            last = r.json["choices"][0]
            text = last["text"]
        assert text == full[: full.index(stop)], (text, full, stop)
        assert last["finish_reason"] == "stop" and last["stop_reason"] == stop, last


@test
def the_same_seed_gives_the_same_text_in_any_company(s):
    ask = lambda: s.complete("Once upon a time", max_tokens=24, temperature=1.0, seed=7, ignore_eos=True).json["choices"][0]["text"]
    alone = ask()
    got = []
    threads = [threading.Thread(target=lambda: got.append(ask())) for _ in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert set(got) == {alone}, set(got) | {alone}
    other = s.complete("Once upon a time", max_tokens=24, temperature=1.0, seed=8, ignore_eos=True).json["choices"][0]["text"]
    assert other != alone


@test
def several_prompts_and_choices_are_numbered(s):
    r = s.complete(["Once", "Twice"], n=2, temperature=0.8, seed=3, max_tokens=5)
    assert r.status == 200, r
    assert [c["index"] for c in r.json["choices"]] == [0, 1, 2, 3]


@test
def logprobs_fit_the_tokens(s):
    r = s.post("/v1/chat/completions", {"messages": MSG, "temperature": 0, "logprobs": True, "top_logprobs": 3, "max_tokens": 12}).json
    lp = r["choices"][0]["logprobs"]["content"]
    assert len(lp) == r["usage"]["completion_tokens"]
    for t in lp:
        assert len(t["top_logprobs"]) == 3 and t["logprob"] <= 0
        assert t["top_logprobs"][0]["logprob"] == t["logprob"], "greedy: the chosen token is the most likely one"
        assert bytes(t["bytes"]).decode("utf-8", "replace") == t["token"]


@test
def echo_scores_a_prompt(s):
    ids = s.post("/tokenize", {"prompt": "The capital of France is Paris."}).json["tokens"]
    r = s.complete(ids, max_tokens=1, echo=True, logprobs=1, temperature=0).json["choices"][0]["logprobs"]
    assert len(r["tokens"]) == len(ids) + 1 == len(r["token_logprobs"]) == len(r["top_logprobs"]) == len(r["text_offset"])
    assert r["token_logprobs"][0] is None and all(x <= 0 for x in r["token_logprobs"][1:])
    for lp, top in zip(r["token_logprobs"][1:], r["top_logprobs"][1:]):
        assert max(top.values()) >= lp and any(v == lp for v in top.values())


@test
def tokenize_and_detokenize_are_inverse(s):
    text = "Hello, wörld! 你好 🙂\n\ttabs"
    t = s.post("/tokenize", {"prompt": text}).json
    assert t["count"] == len(t["tokens"]) and t["max_model_len"] > 0
    assert s.post("/detokenize", {"tokens": t["tokens"]}).json["prompt"] == text
    chat = s.post("/tokenize", {"messages": MSG}).json
    assert chat["count"] > 5


@test
def models_health_version_metrics_and_playground(s):
    m = s.get("/v1/models").json["data"][0]
    assert m["object"] == "model" and m["max_model_len"] > 0
    assert s.get("/v1/models/" + m["id"]).json["id"] == m["id"]
    for p in ("/health", "/ready", "/ping", "/livez"):
        assert s.get(p).status == 200, p
    assert re.match(r"\d+\.\d+\.\d+", s.get("/version").json["version"])
    page = s.get("/")
    assert page.status == 200 and b"<html" in page.body and b"http" not in re.findall(rb"src=[\"']([^\"']*)", page.body)
    names = set(re.findall(r"^([a-z0-9_:]+?)(?:_bucket|_sum|_count)?\{", s.get("/metrics").body.decode(), re.M))
    for n in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:prompt_tokens_total", "vllm:generation_tokens_total",
              "vllm:request_success_total", "vllm:num_preemptions_total", "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total",
              "vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds", "vllm:e2e_request_latency_seconds", "vllm:request_queue_time_seconds",
              "vllm:request_prompt_tokens", "vllm:request_generation_tokens", "vllm:iteration_tokens_total", "vllm:cache_config_info"):
        assert n in names, "no metric %s in %s" % (n, sorted(names))


@test
def the_load_generator_and_the_server_count_the_same(s):
    tool = os.path.join(os.path.dirname(os.environ["SPILLWAY"]), "tools", "bench_serve")
    if not os.path.exists(tool):
        raise Skip("%s is not built" % tool)
    common = [tool, "--url", "http://127.0.0.1:%d" % s.port, "--output-tokens", "7"]
    for work, n in ((["--chat", "--prompt-tokens", "60", "--turns", "3", "--concurrency", "2", "--requests", "6"], 6),
                    (["--prompt-tokens", "48", "--shared-prefix", "32", "--rate", "100", "--requests", "16", "--new-connection"], 16),
                    (["--no-stream", "--requests", "4", "--concurrency", "4", "--slo-e2e-ms", "60000"], 4)):
        before = {k: s.metric(k) for k in ("vllm:generation_tokens_total", "vllm:prompt_tokens_total")}
        r = subprocess.run(common + work, capture_output=True, text=True, timeout=300)
        assert r.returncode == 0, r.stderr + r.stdout
        d = json.loads(r.stdout.splitlines()[-1])
        assert d["ok"] == n and not d["errors"] and not d["refused"] and not d["unlike"] and not d["no_usage"], d
        assert d["output_tokens"] == 7 * n and d["e2e_ms"]["n"] == n and d.get("good", n) == n, d
        probes = {"prompt": 2, "generation": 2} if "--chat" in work else {"generation": 0}  # two requests ahead of a chat's work
        assert s.metric("vllm:generation_tokens_total") - before["vllm:generation_tokens_total"] == 7 * n + probes["generation"], d
        prompt = s.metric("vllm:prompt_tokens_total") - before["vllm:prompt_tokens_total"]
        if "--chat" not in work:
            assert prompt == d["prompt_tokens"] == n * (48 if "--shared-prefix" in work else 256), (prompt, d)
        if "--shared-prefix" in work:
            assert d["cached_tokens"] >= 32 * (n - 12), d  # the first few may run at the same time
        if "--chat" in work:  # the third turn has all that was said before
            assert d["prompt_tokens"] > 1.5 * 60 * n and d["cached_tokens"] > 0, d


@test
def counters_agree_with_each_other(s):
    for extra in ({}, {"stream": True}, {"max_tokens": -1}):
        s.post("/v1/completions", dict({"prompt": "Numbers that agree", "max_tokens": 9, "temperature": 0}, **extra))
    from harness import eventually
    eventually(lambda: s.metric("spillway:generations") == 0, "all have ended")
    m = lambda name: s.metric(name)  # over all its series
    assert m("vllm:prompt_tokens_by_source_total") == m("vllm:prompt_tokens_total") > 0
    assert m("vllm:prompt_tokens_cached_by_source_total") == m("vllm:prompt_tokens_cached_total")
    assert m("vllm:request_success_total") == m("vllm:e2e_request_latency_seconds_count") == m("spillway:requests_ended_total")
    assert m("vllm:num_requests_waiting_by_reason") == m("vllm:num_requests_waiting") == m("spillway:queue_requests") == 0
    assert 0 <= m("vllm:kv_cache_usage_perc") <= 1 and 0 <= m("vllm:gpu_prefix_cache_hit_rate") <= 1
    phases, steps = m("spillway:step_phase_seconds_total"), m("spillway:engine_steps_total")
    assert 0 < phases and 0 < m("spillway:step_host_seconds_count") <= 3 * steps + 3, (phases, steps)
    assert m("spillway:step_host_seconds_sum") <= phases
    reserved, used = m("spillway:arena_reserved_bytes"), m("spillway:arena_used_bytes")
    assert 0 < used <= reserved, (used, reserved)


@test
def a_plan_has_the_bytes_of_a_start(s):
    from harness import BINARY, Server

    for more in ([], ["--quantization", "int8"], ["--quantization", "int4-all", "--tensor-parallel-size", "2"], ["--kv-cache-dtype", "float32", "--block-size", "32"],
                 ["--kv-cache-dtype", "fp8"]):
        p = subprocess.run([BINARY, "plan", "--json", "--context", "1024", *more], capture_output=True, text=True, timeout=60)
        assert p.returncode == 0, p
        plan = json.loads(p.stdout)
        x = Server("--device", "cpu", "--max-model-len", "1024", *more)
        try:
            assert x.metric("spillway:weights_bytes") == plan["weight_bytes"] * plan["ranks"], (more, plan)
            assert x.metric("spillway:kv_cache_bytes") == x.metric("spillway:kv_blocks") * plan["block_bytes"] * plan["ranks"], (more, plan)
        finally:
            x.stop()


@test
def a_load_report_comes_with_the_answer_when_it_is_asked_for(s):
    ask = lambda form, **body: s.request("POST", "/v1/completions", json.dumps(dict({"prompt": "Hi", "max_tokens": 2}, **body)).encode(),
                                         {"Content-Type": "application/json", "endpoint-load-metrics-format": form})
    text = ask("TEXT").header("endpoint-load-metrics")
    assert re.fullmatch(r"TEXT named_metrics\.kv_cache_usage_perc=[01](\.\d+)?, named_metrics\.num_requests_waiting=\d+", text), text
    form, report = ask("JSON", stream=True).header("endpoint-load-metrics").split(" ", 1)
    named = json.loads(report)["named_metrics"]
    assert form == "JSON" and set(named) == {"kv_cache_usage_perc", "num_requests_waiting"} and 0 <= named["kv_cache_usage_perc"] <= 1, report
    assert s.post("/v1/completions", {"prompt": "Hi", "max_tokens": 2}).header("endpoint-load-metrics") is None


@test
def disconnecting_frees_the_slot_and_keeps_the_prefix(s):
    from harness import eventually, post_bytes

    prompt = "A long story about a lighthouse keeper who counted the ships that passed by in the night and wrote each of them down. " * 3
    c = s.conn()
    c.send(post_bytes("/v1/completions", json.dumps({"prompt": prompt, "max_tokens": 1500, "ignore_eos": True, "stream": True}).encode()))
    c.sock.recv(1000)
    c.close()
    eventually(lambda: s.metric("vllm:num_requests_running") == 0, "the slot is free")
    assert s.complete(prompt, max_tokens=2).json["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


@test
def sixty_four_requests_at_once_get_the_answers_of_one_alone(s):
    prompts = ["Tell me a story about a %s." % x for x in ("fox", "cat", "dog", "bear", "king", "ship", "tree", "star")]
    ask = lambda p: s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": p}], "temperature": 0, "max_tokens": 32}).json["choices"][0]["message"]["content"]
    want = {p: ask(p) for p in prompts}
    wrong = []

    def work(i):
        p = prompts[i % 8]
        got = ask(p)
        if got != want[p]:
            wrong.append((p, got, want[p]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(64)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong[0]


@test
def sigterm_drains(s):
    from harness import Server

    s2 = Server("--drain-seconds", "600")  # they finish, however busy the machine is; the limit itself is row I2's
    n = 200 if os.environ.get("SANITIZED_BUILD") else 1200
    body = {"prompt": "Once", "max_tokens": n, "ignore_eos": True, "temperature": 0}
    got = []
    t = threading.Thread(target=lambda: got.append(s2.post("/v1/completions", body)))
    t.start()
    while s2.metric("vllm:num_requests_running") == 0 and not got:
        time.sleep(0.01)
    s2.proc.send_signal(signal.SIGTERM)
    t.join()
    assert got[0].status == 200, got[0]
    assert got[0].json["usage"]["completion_tokens"] == n
    assert s2.proc.wait(180) == 0, s2.tail(60)
    s2.log.close()


@test
def ctrl_c_says_that_a_second_one_ends_at_once_and_it_does(s):
    import select

    from harness import Server, post_bytes

    terminal, end = os.openpty()
    s2 = Server("--drain-seconds", "600", preexec=lambda: os.dup2(end, 2))
    os.close(end)
    seen = b""

    def until_shown(text):
        nonlocal seen
        limit = time.monotonic() + 180
        while text not in seen and time.monotonic() < limit:
            if select.select([terminal], [], [], 1)[0]:
                try:
                    seen += os.read(terminal, 4096)
                except OSError:  # nobody writes there any more
                    break
        assert text in seen, seen

    c = s2.conn()
    c.send(post_bytes("/v1/completions", json.dumps({"prompt": "Once", "max_tokens": 1900, "ignore_eos": True, "n": 8, "temperature": 1}).encode()))
    while s2.metric("vllm:num_requests_running") == 0:
        time.sleep(0.01)
    s2.proc.send_signal(signal.SIGINT)
    until_shown(b"draining; a second Ctrl-C ends at once")
    assert s2.proc.poll() is None, "it drains"
    s2.proc.send_signal(signal.SIGINT)
    assert s2.proc.wait(180) == 0
    replies = c.read_all()
    assert not replies, "it waited for what ran: %s" % replies
    c.close()
    s2.log.close()
    os.close(terminal)


@test
def keys_guard_the_api(s):
    from harness import Server

    s2 = Server("--api-key", "sk-right", "--api-key", "sk-other")
    try:
        for h in ({}, {"Authorization": "Bearer sk-wrong"}, {"Authorization": "Bearer sk-righ"}, {"Authorization": "Bearer "}, {"Authorization": "Basic sk-right"}):
            r = s2.request("POST", "/v1/completions", {"prompt": "Hi", "max_tokens": 1}, h)
            assert r.status == 401 and r.error["message"], (h, r)
        for h in ({"Authorization": "Bearer sk-right"}, {"Authorization": "Bearer sk-other"}, {"x-api-key": "sk-right"}):
            assert s2.request("POST", "/v1/completions", {"prompt": "Hi", "max_tokens": 1}, h).status == 200, h
        assert s2.get("/health").status == 200 and s2.get("/ping").status == 200
        with open(s2.log_path, "rb") as f:
            assert b"sk-right" not in f.read()
    finally:
        s2.stop()


@test
def a_cheaper_way_to_multiply_codes_is_logged(s):
    from harness import Server

    with open("/proc/cpuinfo") as f:
        has_avx2 = " avx2 " in f.read()
    for isa, chosen, better in (("avx2", "int4", "w4a8"), ("avx2", "int8", None), ("avx2", "w4a8", None), ("scalar", "int4", None)):
        if isa == "avx2" and not has_avx2:
            continue
        s2 = Server("--device", "cpu", "--quantization", chosen, "--cpu-isa", isa)
        try:
            with open(s2.log_path) as f:
                said = [line for line in f if "with activations of 8 bits" in line]
            assert len(said) == (better is not None), (isa, chosen, said)
            assert better is None or (f"({better})" in said[0] and f"--quantization {chosen}:" in said[0]), said
        finally:
            s2.stop()


@test
def two_ranks_answer(s):
    from harness import Server

    s2 = Server("--tensor-parallel-size", "2")
    try:
        r = s2.post("/v1/chat/completions", {"messages": MSG, "temperature": 0}).json
        assert "Paris" in r["choices"][0]["message"]["content"], r
    finally:
        s2.stop()


# ---- the official client ---------------------------------------------------------------------------------------------


@sdk
def openai_chat(s):
    r = client(s).chat.completions.create(model="pebble", messages=MSG, temperature=0)
    assert "Paris" in r.choices[0].message.content and r.choices[0].finish_reason == "stop" and r.usage.total_tokens > 0
    assert r._request_id


@sdk
def openai_chat_stream(s):
    text, usage = "", None
    for chunk in client(s).chat.completions.create(model="pebble", messages=MSG, temperature=0, stream=True, stream_options={"include_usage": True}):
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
        usage = chunk.usage or usage
    assert "Paris" in text and usage.completion_tokens > 0


@sdk
def openai_completion_and_stream(s):
    r = client(s).completions.create(model="pebble", prompt="Once upon a time", max_tokens=16, temperature=0)
    text = "".join(c.choices[0].text for c in client(s).completions.create(model="pebble", prompt="Once upon a time", max_tokens=16, temperature=0, stream=True))
    assert text == r.choices[0].text


@sdk
def openai_logprobs(s):
    r = client(s).chat.completions.create(model="pebble", messages=MSG, temperature=0, logprobs=True, top_logprobs=2)
    assert len(r.choices[0].logprobs.content) == r.usage.completion_tokens


@sdk
def openai_errors(s):
    import openai

    c = client(s)
    for want, kw in ((openai.BadRequestError, dict(model="pebble", messages=[])), (openai.NotFoundError, dict(model="nope", messages=MSG)),
                     (openai.BadRequestError, dict(model="pebble", messages=MSG, temperature=9))):
        try:
            c.chat.completions.create(**kw)
        except want as e:
            assert e.body["message"] and e.body["code"], e.body
        else:
            raise AssertionError("no %s for %r" % (want.__name__, kw))


@sdk
def openai_models(s):
    m = client(s).models.list().data
    assert m[0].id == "pebble" and client(s).models.retrieve("pebble").id == "pebble"


@sdk
def openai_sixty_four_streams_at_once(s):
    import openai

    async def main():
        c = openai.AsyncOpenAI(base_url="http://127.0.0.1:%d/v1" % s.port, api_key="none", max_retries=0, timeout=300)

        async def one(i):
            text = ""
            stream = await c.chat.completions.create(model="pebble", messages=[{"role": "user", "content": "What is the capital of %s?" % ("France", "Italy", "Spain", "Japan")[i % 4]}],
                                                     temperature=0, stream=True)
            async for chunk in stream:
                if chunk.choices:
                    text += chunk.choices[0].delta.content or ""
            return text

        return await asyncio.gather(*[one(i) for i in range(64)])

    got = asyncio.run(main())
    for k, word in enumerate(("Paris", "Rome", "Madrid", "Tokyo")):
        assert {x for i, x in enumerate(got) if i % 4 == k} == {got[k]}, "answers differ"
        assert word in got[k], got[k]


@test
def weights_that_were_kept_are_found_and_checked(s):
    """Two servers that begin at once keep the weights in one folder; the next maps what they left; a damaged file is made anew."""
    import tempfile

    from harness import Server

    model = os.path.join(os.path.dirname(os.path.dirname(HERE)), "models", "pebble")
    if not os.path.exists(os.path.join(model, "model.safetensors")):
        raise Skip("no weights in models/pebble here: the program has them inside")
    folder = tempfile.mkdtemp(prefix="spillway-packed-")
    args = ["--model", model, "--device", "cpu", "--packed-cache", folder]
    ask = {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}

    def text_of(x):
        r = x.post("/v1/completions", ask)
        assert r.status == 200, r
        return r.json["choices"][0]["text"]

    def log(x):
        with open(x.log_path) as f:
            return f.read()

    plain = Server(*args[:4])
    want = text_of(plain)
    plain.stop()
    two = [Server(*args, wait=False) for _ in range(2)]
    for x in two:
        x.wait_ready()
        assert text_of(x) == want
    for x in two:
        x.stop()
    kind = lambda name: name.rpartition(".")[2]
    names = sorted(os.listdir(folder), key=kind, reverse=True)
    assert [kind(x) for x in names] == ["packed", "ident"], names
    path = os.path.join(folder, names[0])
    for hurt in (False, True, False):
        if hurt:
            with open(path, "r+b") as f:
                f.seek((2 << 20) + 4321)
                c = f.read(1)
                f.seek(-1, 1)
                f.write(bytes([c[0] ^ 4]))
        x = Server(*args)
        assert text_of(x) == want
        found = "of weights mapped from" in log(x) or "of weights read from" in log(x)
        assert found != hurt and ("are not what was written" in log(x)) == hurt, x.tail()
        x.stop()
        assert sorted(os.listdir(folder), key=kind, reverse=True) == names


@test
def readme_does_what_it_says(s):
    import importlib.util
    import tempfile

    import readme
    from harness import BINARY, free_port

    if not os.path.exists(os.path.join(readme.ROOT, "models", "pebble", "model.safetensors")):
        raise Skip("no weights in models/pebble here: the program has them inside")
    python = sys.executable if importlib.util.find_spec("openai") else None
    readme.run(BINARY, tempfile.mkdtemp(prefix="spillway-readme-"), (free_port(), free_port()), python)


@test
def a_start_that_fails_says_why_in_its_last_line(s):
    import tempfile

    from harness import BINARY, free_port

    folder = tempfile.mkdtemp(prefix="spillway-start-")
    cases = [
        (["--model", "Qwen/Qwen3-0.6B"], "nothing is downloaded; fetch it with 'hf download Qwen/Qwen3-0.6B --local-dir Qwen3-0.6B'"),
        (["owner/model"], "nothing is downloaded"),
        (["--model", "pebble9"], "there is no folder pebble9 here; give the path of a model folder, or leave --model out"),
        (["--model", folder], folder),
        (["--model", os.path.join(folder, "x", "y")], "No such file or directory"),
        (["--tool-call-parser", "nonsense"], "found 'nonsense', allowed are auto, none, hermes"),
        (["--quantization", "bitsandbytes"], "found 'bitsandbytes', allowed are auto|int8"),
        (["--quantization", "awq"], "--quantization awq: the checkpoint has no such codes"),
        (["--port", str(s.port)], "in use"),
        (["serv"], "did you mean 'serve'?"),
    ]
    for args, why in cases:
        r = subprocess.run([BINARY, "--port", "0", *args], capture_output=True, text=True, timeout=180)
        last = r.stderr.strip().split("\n")[-1]
        assert r.returncode in (64, 78) and last.startswith("spillway: ") and why in last, (args, r.returncode, r.stderr)
    r = subprocess.run([BINARY, "--healthcheck", "--port", str(free_port())], capture_output=True, text=True, timeout=60)
    assert r.returncode == 1 and r.stderr.endswith("/health: cannot connect: Connection refused\n"), r
    r = subprocess.run([BINARY, "--healthcheck", "--port", str(s.port)], capture_output=True, text=True, timeout=60)
    assert r.returncode == 0 and r.stderr == "", r


@test
def the_families_of_the_readme_are_those_that_are_listed(s):
    from harness import BINARY

    r = subprocess.run([BINARY, "--list-families"], capture_output=True, text=True, timeout=60)
    assert r.returncode == 0 and r.stderr == "", r
    rows = [line.split(None, 2) for line in r.stdout.splitlines()]
    rows = [[arch, kind, *text.split(": ", 1)] for arch, kind, text in rows]
    assert ["LlamaForCausalLM", "llama", "Llama 2/3.x"] in [row[:3] for row in rows], rows
    docs = os.path.join(os.path.dirname(__file__), "../..")
    with open(os.path.join(docs, "README.md"), encoding="utf-8") as f:
        readme = " ".join(f.read().split())
    want = "Families: " + ", ".join(row[2] for row in rows) + "."
    assert want in readme, want
    with open(os.path.join(docs, "docs/MODELS.md"), encoding="utf-8") as f:
        table = f.read().split("|---|---|---|---|---|---|---|---|---|---|---|\n")[1].split("\n\n")[0]
    cells = [[x.strip() for x in line.strip("|").split("|")] for line in table.splitlines()]
    assert [[*c[1].replace("`", "").split(", "), c[0], c[2]] for c in cells] == rows, [row[0] for row in rows]
    encoders = {"BERT", "XLM-RoBERTa", "RoBERTa", "ModernBERT", "nomic-bert", "GTE", "Jina v3", "EmbeddingGemma"}  # keep none
    for family, _, _, _, _, shape, windows, kv, beyond, long, error in cells:
        shapes = [[int(x) for x in one.split(" x ")] for one in shape.split(", ")]  # where there are two, the layers with windows are the first
        windowed = int(windows.split(" of ")[0]) if windows else 0
        tokens = [layers * heads * size * 2 * 2 / 1024 for layers, heads, size in shapes]  # KiB of keys and values in 16 bits
        tokens = [0] if family in encoders else tokens
        behind = tokens[0] * (shapes[0][0] - windowed) / shapes[0][0] + sum(tokens[1:])
        assert [float(kv), float(beyond), float(long)] == [sum(tokens), behind, sum(tokens) / 32], family
        assert 0 < float(error) < 1e-4, family


@test
def the_routes_of_the_readme_are_those_that_a_404_names(s):
    import re

    with open(os.path.join(os.path.dirname(__file__), "../../README.md"), encoding="utf-8") as f:
        table = f.read().split("| route | |\n|---|---|\n")[1].split("\n\n")[0]
    cells = re.findall(r"^\| (.*?) \|", table, re.M)
    written = [p for cell in cells for p in re.findall(r"(?<![.\w{}])/[a-z0-9_/{}]*", cell)]
    assert len(set(written)) == len(written), written
    named = [one.split(" ") for one in s.get("/nothing").error["message"].split("; here are ")[1].split(", ")]
    quiet = {"/health", "/ready", "/ping", "/livez", "/metrics", "/version", "/"}  # what a client has no use for, and the page
    adapters = {"/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/adapters", "/adapters/{name}"}  # of --enable-lora
    assert set(written) - quiet - adapters == {path for _, path in named}, (written, named)
    assert quiet | adapters <= set(written), written
    for path in quiet - {"/metrics"}:
        assert s.get(path).status == 200, path
    for method, path in named:
        r = s.request(method, path.replace("{id}", "x").replace("{file}", "app.js"), b"{}", {"Content-Type": "application/json"})
        assert r.status != 405 and b"no such route" not in r.body, (method, path, r)


@test
def an_error_is_logged_with_its_reason_and_without_the_prompt(s):
    from harness import Server

    x = Server()
    try:
        secret = "my secret words"
        x.post("/v1/chat/completions", {"messages": [{"role": "user", "content": secret}], "temperature": 9})
        x.post("/v1/chat/completions", {"messages": secret})
        x.request("POST", "/v1/completions", b'{"prompt": "%s" nonsense}' % secret.encode(), {"Content-Type": "application/json"})
        r = x.get("/v1/v1/models")
        assert r.status == 404 and r.error["message"].startswith("no such route: GET /v1/v1/models; did you mean /v1/models? Here are POST /v1/chat"), r
        assert x.post("/chat/completions", {}).error["message"].startswith("no such route: POST /chat/completions; did you mean /v1/chat/completions?")
        long = x.get("/" + "a" * 1500 + "%0a")
        assert long.status == 404 and len(long.error["message"]) < 800, long
        t0 = time.monotonic()
        for i in range(100):
            x.get("/nothing/%d" % i)
        seconds = time.monotonic() - t0
        with open(x.log_path) as f:
            log = f.read()
    finally:
        x.stop()
    bad = [l for l in log.split("\n") if "status=400" in l]
    assert len(bad) == 3, log
    assert "param=temperature" in bad[0] and "'temperature' must be a number" in bad[0], bad
    assert "param=messages" in bad[1] and "must be an array" in bad[1], bad
    assert 'reason="the body is not valid JSON"' in bad[2], bad
    gone = [l for l in log.split("\n") if "status=404" in l]
    assert "GET /v1/v1/models" in gone[0] and "POST /chat/completions" in gone[1], gone
    assert 20 <= len(gone) <= 20 * (seconds + 3), (len(gone), seconds)  # 20 lines a second, whatever comes
    assert secret not in log and "nonsense" not in log


@test
def tokenizer_info_says_what_a_remote_tokenizer_needs(s):
    info = s.get("/tokenizer_info").json
    assert info["tokenizer_class"] == "PreTrainedTokenizerFast" and info["eos_token"] == "<|im_end|>" and info["pad_token"] == "<|endoftext|>", info
    assert "bos_token" not in info and info["model_max_length"] == s.get("/v1/models").json["data"][0]["max_model_len"]
    assert "{%- for message in messages %}" in info["chat_template"]


@test
def no_tools_are_no_tools(s):
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    want = s.post("/v1/chat/completions", {"messages": MSG, "temperature": 0}).json["choices"][0]["message"]["content"]
    for more in ({"tools": []}, {"tools": [], "tool_choice": "none"}, {"tool_choice": "none"}):
        r = s.post("/v1/chat/completions", dict(messages=MSG, temperature=0, **more))
        assert r.status == 200 and r.json["choices"][0]["message"]["content"] == want, (more, r)
    for more in ({}, {"tool_choice": "none"}):  # shown to the model, which answers with text
        r = s.post("/v1/chat/completions", dict(messages=MSG, tools=[tool], max_tokens=8, **more))
        assert r.status == 200 and r.json["choices"][0]["finish_reason"] in ("stop", "length", "tool_calls"), r
    r = s.post("/v1/chat/completions", {"messages": MSG, "tools": [tool], "tool_choice": "required", "parallel_tool_calls": False})
    call = r.json["choices"][0]["message"]["tool_calls"][0]["function"]
    assert call["name"] == "f" and json.loads(call["arguments"]) == {} and r.json["choices"][0]["finish_reason"] == "tool_calls", r


@test
def a_special_token_that_only_the_map_names_is_in_the_prompt(s):
    """`{{ bos_token }}` was empty where bos_token stands in special_tokens_map.json alone."""
    import shutil
    import tempfile

    from harness import Server

    pebble = os.path.join(os.path.dirname(os.path.dirname(HERE)), "models", "pebble")
    folder = tempfile.mkdtemp(prefix="spillway-special-")
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(os.path.join(pebble, name), folder)
    files = {"tokenizer_config.json": json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "call_token": "<tool_call>"}),
             "special_tokens_map.json": json.dumps({"bos_token": "<|endoftext|>", "eos_token": {"content": "<|im_end|>"}}),
             "chat_template.jinja": "{{ bos_token }}{{ messages[0].content }}{{ call_token }}{{ eos_token }}{{ suffix }}"}
    for name, text in files.items():
        with open(os.path.join(folder, name), "w") as f:
            f.write(text)
    x = Server("--model", folder, "--load-format", "dummy", "--device", "cpu")
    try:
        def ids(**more):
            return x.post("/tokenize", dict(messages=[{"role": "user", "content": "Hi"}], add_special_tokens=False, **more)).json["tokens"]

        hi = x.post("/tokenize", {"prompt": "Hi", "add_special_tokens": False}).json["tokens"]
        assert ids() == [0] + hi + [3, 2], ids()
        long = " word" * 500
        tail = x.post("/tokenize", {"prompt": long, "add_special_tokens": False}).json["tokens"]
        assert ids(chat_template_kwargs={"suffix": long}) == [0] + hi + [3, 2] + tail
    finally:
        x.stop()


@test
def the_served_context_chooses_the_frequencies_of_a_longrope_model(s):
    import shutil
    import tempfile

    from harness import Server

    pebble = os.path.join(os.path.dirname(os.path.dirname(HERE)), "models", "pebble")
    folder = tempfile.mkdtemp(prefix="spillway-longrope-")
    shutil.copy(os.path.join(pebble, "tokenizer.json"), folder)
    with open(os.path.join(pebble, "config.json"), encoding="utf-8") as f:
        vocab = json.load(f)["vocab_size"]
    config = dict(architectures=["Phi3ForCausalLM"], hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=vocab,
                  max_position_embeddings=512, original_max_position_embeddings=128, eos_token_id=2, torch_dtype="bfloat16",
                  rope_scaling=dict(type="longrope", short_factor=[1.0] * 8, long_factor=[4.0] * 8))
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    try:
        for args, used in (((), "long"), (("--max-model-len", "129"), "long"), (("--max-model-len", "128"), "short")):
            x = Server("--model", folder, "--load-format", "dummy", "--device", "cpu", "--kv-cache-bytes", "16MiB", *args)
            try:
                assert x.post("/v1/completions", {"prompt": "Hi", "max_tokens": 4}).status == 200
                assert "all sequences have the %s frequencies" % used in x.tail(200), x.tail(200)
            finally:
                x.stop()
    finally:
        shutil.rmtree(folder)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--preset", default="dev")
    ap.add_argument("--quick", action="store_true")
    ap.add_argument("--but", default="")
    ap.add_argument("--args", default="")
    ap.add_argument("names", nargs="*")
    a = ap.parse_args()
    os.environ.setdefault("SPILLWAY", os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", a.preset, "spillway"))
    from harness import Server

    passed, failed, skipped = 0, [], 0
    s = Server(*shlex.split(a.args))
    for fn, needs_sdk in TESTS:
        if (a.names and fn.__name__ not in a.names) or (needs_sdk and a.quick) or fn.__name__ == a.but:
            continue
        t0 = time.monotonic()
        try:
            fn(s)
            assert s.proc.poll() is None, "the server died: " + s.tail()
            passed += 1
            print("ok     %s (%.1f s)" % (fn.__name__, time.monotonic() - t0), flush=True)
        except Skip as e:
            skipped += 1
            print("skipped %s: %s" % (fn.__name__, e), flush=True)
        except Exception as e:
            failed.append(fn.__name__)
            print("FAILED %s: %s" % (fn.__name__, e), flush=True)
            traceback.print_exc()
            if s.proc.poll() is not None:
                s = Server(*shlex.split(a.args))
    s.proc.send_signal(signal.SIGTERM)
    rc = s.proc.wait(180)
    if rc != 0:
        failed.append("exit")
        print("FAILED the server ended with %d:\n%s" % (rc, s.tail(40)))
    print("%d passed, %d failed, %d skipped" % (passed, len(failed), skipped))
    return 1 if failed else 0


if __name__ == "__main__":
    scratch.run(main)
