"""A server of S3 for tests: moto's, and before it a proxy that can answer wrongly.

Faults of the proxy, each for a share of the requests (fault: a function of the request's number, method and path):
500, slow, cut (the body ends in the middle), long, short (another length than asked for), flip (one bit), refuse (403), expired,
silent (no answer)."""

import http.client
import http.server
import os
import socket
import subprocess
import sys
import threading
import time

from harness import free_port

PATIENCE = 180  # seconds: nothing but a hang lasts as long
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test-secret", "AWS_REGION": "us-east-1"}


class Moto:
    """The server of S3 itself."""

    def __init__(self):
        self.port = free_port()
        env = dict(os.environ, MOTO_S3_DEFAULT_MAX_KEYS="1000", **KEYS)
        code = "from moto.server import main; main(['-H', '127.0.0.1', '-p', '%d'])" % self.port
        self.proc = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            except OSError:
                assert self.proc.poll() is None and time.monotonic() < end, "moto's server does not start"
                time.sleep(0.1)

    def call(self, method, path, body=None, headers=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        auth = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
        c.request(method, path, body, dict({"Authorization": auth}, **(headers or {})))
        r = c.getresponse()
        data = r.read()
        c.close()
        return r.status, data

    def bucket(self, name):
        assert self.call("PUT", "/" + name)[0] == 200
        return self

    def put(self, bucket, key, body):
        assert self.call("PUT", "/%s/%s" % (bucket, key), body)[0] == 200

    def get(self, bucket, key):
        return self.call("GET", "/%s/%s" % (bucket, key))[1]

    def keys(self, bucket):
        """Names and sizes; tests have fewer than a page of them."""
        import re
        text = self.call("GET", "/%s?list-type=2" % bucket)[1].decode()
        return [(k, int(s)) for k, s in re.findall(r"<Key>([^<]*)</Key>.*?<Size>(\d+)</Size>", text, re.S)]

    def stop(self):
        self.proc.kill()
        self.proc.wait()


class Proxy:
    """Between a client and a server of S3."""

    def __init__(self, port):
        self.fault = None
        self.n = 0
        self.seen = []  # (method, path, headers)
        self.lock = threading.Lock()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *a):
                pass

            def handle_one(self):
                with proxy.lock:
                    proxy.n += 1
                    n = proxy.n
                    proxy.seen.append((self.command, self.path, dict(self.headers)))
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                fault = proxy.fault(n, self.command, self.path) if proxy.fault else None
                proxy.answer(self, port, body, fault)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *a):  # a client that hangs up
                pass

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.stopping = threading.Event()
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def error(self, h, status, code):
        text = ("<Error><Code>%s</Code><Message>made up</Message></Error>" % code).encode()
        h.send_response(status)
        h.send_header("content-length", str(len(text)))
        h.end_headers()
        h.wfile.write(text)

    def answer(self, h, port, body, fault):
        if fault == "500":
            return self.error(h, 500, "InternalError")
        if fault == "refuse":
            return self.error(h, 403, "AccessDenied")
        if fault == "expired":
            return self.error(h, 400, "ExpiredToken")
        if fault == "silent":
            self.stopping.wait(PATIENCE)
            h.close_connection = True
            return None
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        c.request(h.command, h.path, body, {k: v for k, v in h.headers.items() if k.lower() not in ("connection",)})
        r = c.getresponse()
        data = r.read()
        c.close()
        length = len(data)
        if h.command == "GET" and r.status in (200, 206) and data:
            if fault == "flip":
                data = data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 4]) + data[len(data) // 2 + 1 :]
            if fault == "long":
                data, length = data + b"x" * 512, length + 512
            if fault == "short":
                data, length = data[:-7], length - 7
        h.send_response(r.status)
        for k, v in r.getheaders():
            if k.lower() not in ("content-length", "transfer-encoding", "connection"):
                h.send_header(k, v)
        h.send_header("content-length", str(length))
        h.end_headers()
        if h.command == "HEAD":
            return None
        if fault == "cut":
            h.wfile.write(data[: len(data) // 2])
            h.close_connection = True
        elif fault == "slow":
            for at in range(0, len(data), 4096):  # 400 KB/s
                h.wfile.write(data[at : at + 4096])
                h.wfile.flush()
                if self.stopping.wait(0.01):
                    return None
        else:
            h.wfile.write(data)
        return None

    def url(self):
        return "http://127.0.0.1:%d" % self.port

    def stop(self):
        self.stopping.set()
        self.server.shutdown()
        self.server.server_close()
