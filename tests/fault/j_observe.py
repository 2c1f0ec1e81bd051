"""Rows of layer J that need a shim: a check of keys that fails inside, and whom a server wants to reach."""

import os
import subprocess
import tempfile

from harness import ROOT, SMALL, Server, eventually, free_port, row


def build(name):
    folder = tempfile.mkdtemp(prefix="spillway-shim-")
    out, ctl = os.path.join(folder, name + ".so"), os.path.join(folder, "ctl")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", out, os.path.join(ROOT, "tests", "fault", name + ".c"), "-ldl"], check=True)
    open(ctl, "w").close()
    return ctl, (os.environ.get("LD_PRELOAD", "") + " " + out).strip()


@row("J3", "where the check of a key fails inside, nobody is let in, and afterwards the right key is", own=True)
def j3(_):
    key = "sk-0123456789abcdef0123456789abcdef"
    ctl, preload = build("shim_auth")
    s = Server("--api-key", key, "--max-key-failures", "0", env={"LD_PRELOAD": preload, "SHIM_AUTH": ctl})

    def ask(sent, path="/v1/completions", body=SMALL):
        return s.request("POST" if body else "GET", path, body, {"Authorization": "Bearer " + sent}).status

    try:
        assert ask(key) == 200 and ask("wrong") == 401
        for fault in "dl":
            with open(ctl, "w") as f:
                f.write(fault)
            for sent in (key, "wrong", "", key + "x"):
                assert ask(sent) in (401, 503), (fault, sent)
                assert ask(sent, "/v1/models", None) in (401, 503), (fault, sent)
            assert s.get("/ping").status == 200
            open(ctl, "w").close()
            assert ask(key) == 200 and ask("wrong") == 401, fault
    finally:
        s.stop()


@row("J15", "nobody is called but who was configured: no connection, no packet, no name looked up", own=True)
def j15(_):
    said, preload = build("shim_net")

    def calls():
        with open(said) as f:
            return f.read().split("\n")[:-1]

    # What tempts: variables of other programs, proxies, and names and addresses in what clients send.
    env = {"LD_PRELOAD": preload, "SHIM_NET": said, "HTTP_PROXY": "http://192.0.2.1:3128", "https_proxy": "http://192.0.2.1:3128", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://192.0.2.2:4318",
           "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://192.0.2.3/credentials", "HF_ENDPOINT": "http://192.0.2.4"}
    folder = tempfile.mkdtemp(prefix="spillway-egress-")
    s = Server("--kv-host-gib", "0.01", "--kv-nvme", folder + "/kv:0.05", env=env)
    try:
        assert s.request("POST", "/v1/completions", SMALL).status == 200
        chat = b'{"messages":[{"role":"user","content":"http://192.0.2.5/x"}],"max_tokens":4,"stream":true}'
        assert s.request("POST", "/v1/chat/completions", chat).status == 200
        image = b'{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://192.0.2.6/a.png"}}]}]}'
        assert s.request("POST", "/v1/chat/completions", image).status == 400
        far = {"X-Forwarded-For": "192.0.2.7", "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
        assert s.request("POST", "/v1/completions", SMALL, far).status == 200
        for path in ("/metrics", "/health", "/ready", "/v1/models", "/", "/version", "/nope"):
            s.get(path)
    finally:
        s.stop()
    assert calls() == [], calls()
    port = free_port()  # who is configured is called, so the shim would have seen others
    s = Server("--otlp-traces-endpoint", "http://127.0.0.1:%d" % port, env=env)
    try:
        assert s.request("POST", "/v1/completions", SMALL).status == 200
        eventually(calls, "the collector is called")
        assert set(calls()) == {"connect 127.0.0.1 port %d" % port}, calls()
    finally:
        s.stop()
