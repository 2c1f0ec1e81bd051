"""Layer E of the fault table: what of the scheduler and engine is visible through the socket. The rest of the layer is in tests/sim."""

import json
import threading
import time

from harness import Server, eventually, post_bytes, row, slower, sse_text


@row("E8", "overload: over the bound 429 with Retry-After at once, what was accepted is exact", own=True)
def e8(_):
    s = Server("--max-num-seqs", "4", "--max-queue-requests", "8")
    try:
        want = s.complete("The capital of France is", max_tokens=24, temperature=0, ignore_eos=True).json["choices"][0]["text"]
        codes, wrong, lock = [], [], threading.Lock()

        def client():
            for _ in range(8):
                r = s.complete("The capital of France is", max_tokens=24, temperature=0, ignore_eos=True)
                with lock:
                    codes.append(r.status)
                    if r.status == 429 and not r.header("retry-after"):
                        wrong.append("429 without Retry-After")
                    if r.status == 200 and r.json["choices"][0]["text"] != want:
                        wrong.append("another text under load")

        threads = [threading.Thread(target=client) for _ in range(64)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong, wrong[:3]
        assert set(codes) == {200, 429}, {c: codes.count(c) for c in set(codes)}
        assert s.complete("Hi", max_tokens=1).status == 200
    finally:
        s.stop()


@row("E10", "a burst of 1,280 requests in one instant", own=True)
def e10(_):
    s = Server()
    try:
        body = post_bytes("/v1/completions", json.dumps({"prompt": "Count:", "max_tokens": 4, "temperature": 0}).encode())
        conns = [s.conn() for _ in range(1280)]
        for c in conns:
            c.send(body)
        pings = []
        for _ in range(50):
            t = time.monotonic()
            assert s.get("/ping").status == 200
            pings.append(time.monotonic() - t)
        texts = {}
        for c in conns:
            r = c.read_reply()
            assert r.status in (200, 429), r
            if r.status == 200:
                texts[r.json["choices"][0]["text"]] = texts.get(r.json["choices"][0]["text"], 0) + 1
            c.close()
        assert len(texts) == 1, texts
        assert sorted(pings)[25] < 1.0 * slower(), "median ping %.3f s" % sorted(pings)[25]
    finally:
        s.stop()


@row("E11", "a long prefill among decodes is chunked")
def e11(s):
    gaps = []
    c = s.conn()
    c.send(post_bytes("/v1/completions", json.dumps({"prompt": "Once", "max_tokens": 200, "temperature": 0, "ignore_eos": True, "stream": True}).encode()))
    ids = s.post("/tokenize", {"prompt": "the fox and the hound " * 700}).json["tokens"][:2000]
    t = threading.Thread(target=lambda: gaps.append(s.complete(ids, max_tokens=1)))
    t.start()
    r = c.read_reply()
    t.join()
    assert r.status == 200 and gaps[0].status == 200, (r, gaps)
    sse_text(r.body)
    c.close()


@row("E15", "the same client-sent request id on many requests")
def e15(s):
    prompts = ["The capital of France is", "Monday, Tuesday,", "Once upon a time", "One, two, three,"]
    want = [s.complete(p, max_tokens=12, temperature=0).json["choices"][0]["text"] for p in prompts]
    got = {}

    def client(i):
        got[i] = s.complete(prompts[i % 4], max_tokens=12, temperature=0, request_id="same").json["choices"][0]["text"]

    threads = [threading.Thread(target=client, args=(i,)) for i in range(32)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i, text in got.items():
        assert text == want[i % 4], (i, text, want[i % 4])


@row("E17", "a stream slower than decode holds up nobody")
def e17(s):
    c = s.conn(rcvbuf=4096)
    c.send(post_bytes("/v1/completions", json.dumps({"prompt": "Once", "max_tokens": 1500, "temperature": 0, "ignore_eos": True, "stream": True, "logprobs": 3}).encode()))
    for _ in range(10):
        assert s.complete("Hi", max_tokens=4, temperature=0).status == 200
    r = c.read_reply()
    sse_text(r.body)
    c.close()
