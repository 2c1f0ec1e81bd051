"""A relay between browser and server: the page keeps its address while servers come and go, and an answer can be held.

    relay = Relay(server.port)
    relay.hold(3)        the next streamed answer stops behind its third event with text, until go_on()
    relay.cut()          the server is gone: what is held is lost, and connections are taken and closed, until relay.server is set again"""

import os
import socket
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fault"))

from harness import PATIENCE  # noqa: E402

EVENT = b'"delta":{"content":'
END = b"data: [DONE]"


def cut_inside(data):
    """Whether the kernel may have cut a write of the server here: it ends with a line, and an event with two."""
    return not data.endswith(b"\n") or (EVENT in data and b"\n\n" not in data[data.rindex(EVENT):])


class Relay:
    def __init__(self, server):
        self.server, self.held_after, self.lock = server, None, threading.Condition()
        self.held_now = None
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        try:
            server = socket.create_connection(("127.0.0.1", self.server)) if self.server else None
        except OSError:
            server = None
        if not server:
            client.close()
            return
        threading.Thread(target=self._up, args=(client, server), daemon=True).start()
        try:
            self._down(server, client)
        except OSError:
            pass
        for s in (client, server):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()

    def _up(self, client, server):
        try:
            while data := client.recv(1 << 16):
                server.sendall(data)
            server.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def _down(self, server, client):
        """Answers, byte for byte. Of a stream that is to be held, what follows the last event that may pass waits."""
        after, events, tail = None, 0, b""
        while data := server.recv(1 << 16):
            if after is None and EVENT in data:
                after = self._claim()
            while after and cut_inside(data) and (more := server.recv(1 << 16)):
                data += more
            while after and EVENT in data:
                end = data.index(b"\n\n", data.index(EVENT)) + 2
                client.sendall(data[:end])
                data, events = data[end:], events + 1
                if events == after:
                    self._wait()
                    after = 0
            if not self.server:
                return
            client.sendall(data)
            # a browser reads what is left of an answer that was stopped, and may use the connection for the next one
            if END in tail + data:
                after, events = None, 0
            tail = (tail + data)[-len(END):]

    def _claim(self):
        """What the stream that begins must do: hold after so many events, or 0."""
        with self.lock:
            after, self.held_after = self.held_after or 0, None
            return after

    def _wait(self):
        with self.lock:
            mine = self.held_now = object()
            self.lock.notify_all()
            self.lock.wait_for(lambda: self.held_now is not mine)

    def hold(self, events):
        with self.lock:
            self.held_after = events

    def go_on(self):
        with self.lock:
            self.held_now = None
            self.lock.notify_all()

    def held(self):
        """Waits until an answer is held."""
        with self.lock:
            assert self.lock.wait_for(lambda: self.held_now, PATIENCE), "no answer came that could be held"

    def cut(self):
        self.server = None
        self.go_on()

    def close(self):
        self.go_on()
        self.socket.close()
