#!/usr/bin/env python3
"""The image's file tree as deploy/rootfs.sh assembles it, and the server in it as a container engine would start it (box.py).
# Run by: section rootfs alone: it needs the program that ships.

    container.py [FOLDER]      FOLDER: where the tree is made (default: build/rootfs)

One line each, then `N passed, N failed, N skipped`."""

import glob
import hashlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "fault"))

import scratch  # noqa: E402
from boxed import SPILLWAY, UID, Boxed, assemble, run_boxed  # noqa: E402
from harness import BINARY, PATIENCE, eventually, free_port, run_tests, sse_text  # noqa: E402

MB_MAX, CUDA_MB_MAX = 60, 1000  # of the image without CUDA's libraries, and with cuBLASLt and NCCL
SBOM = "usr/share/doc/spillway/SBOM.spdx.json"
tree = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(ROOT, "build", "rootfs")


def files():
    """(path below the tree, its lstat) of everything that is no folder."""
    for folder, _, names in os.walk(tree):
        for name in names:
            path = os.path.join(folder, name)
            yield "/" + os.path.relpath(path, tree), os.lstat(path)


# ---- the tree


def it_is_small():
    """Kernels of five architectures are another 80 MB: a build with a CUDA device has the limit of the image with CUDA's libraries."""
    with_cuda = "no cuda device" not in subprocess.run([BINARY, "--list-devices"], capture_output=True, text=True).stdout
    limit = CUDA_MB_MAX if with_cuda else MB_MAX
    n = sum(st.st_size for _, st in files())
    print("       %.1f MB of %d" % (n / 1e6, limit))
    assert n <= limit * 1000000, "%d bytes" % n


def it_holds_one_program_and_its_libraries():
    programs = []
    for path, st in files():
        if stat.S_ISLNK(st.st_mode):
            assert os.path.exists(os.path.join(tree, path.lstrip("/"))), "%s leads nowhere" % path
            continue
        assert not st.st_mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWGRP | stat.S_IWOTH), "%s has mode %o" % (path, st.st_mode)
        if st.st_mode & 0o111 and not re.search(r"/lib(64)?/.*\.so", path):
            programs.append(path)
    assert programs == [SPILLWAY], programs
    for name in ("sh", "bash", "busybox", "python3", "perl", "dpkg"):
        assert not glob.glob(os.path.join(tree, "**", "bin", name), recursive=True), name


def every_library_is_found_inside():
    loader = [p for p, _ in files() if re.search(r"/ld-linux[^/]*\.so", p)]
    rc, out = run_boxed(tree, loader[0], "--list", SPILLWAY)
    assert rc == 0 and "not found" not in out and "libc.so.6 => /" in out, (rc, out)
    rc, out = run_boxed(tree, SPILLWAY, "--version")
    assert rc == 0 and out.startswith("spillway "), (rc, out)


def the_list_of_packages_is_valid_and_complete():
    from spdx_tools.spdx.parser.parse_anything import parse_file
    from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

    document = parse_file(os.path.join(tree, SBOM))
    wrong = validate_full_spdx_document(document, "SPDX-2.3")
    assert not wrong, "%d, the first: %s" % (len(wrong), wrong[0].validation_message)
    listed = {f.name[1:]: {c.algorithm.name: c.value for c in f.checksums} for f in document.files}
    have = {p for p, st in files() if stat.S_ISREG(st.st_mode)} - {"/" + SBOM}
    assert set(listed) == have, set(listed) ^ have
    for path, sums in listed.items():
        with open(tree + path, "rb") as f:
            assert sums["SHA256"] == hashlib.sha256(f.read()).hexdigest(), path
    packages = {p.spdx_id: p for p in document.packages}
    names = {p.name for p in document.packages}
    assert {"spillway", "image", "ca-certificates"} <= names and len(names) > 8, names
    origin = {r.spdx_element_id: r.related_spdx_element_id for r in document.relationships if r.relationship_type.name == "GENERATED_FROM"}
    for f in document.files:
        p = packages[origin[f.spdx_id]]
        if f.name.endswith(".so") or ".so." in f.name:
            assert p.name != "spillway" and p.version and p.external_references, "%s comes from %s" % (f.name, p.name)
            if os.path.exists("/usr/share/doc/%s/copyright" % p.name):
                assert "/usr/share/doc/%s/copyright" % p.name in have, "no licence of %s" % p.name


def the_same_sources_give_the_same_tree():
    with tempfile.TemporaryDirectory() as d:
        again = os.path.join(d, "tree")
        assemble(again)
        r = subprocess.run(["diff", "-r", "--no-dereference", tree, again], capture_output=True, text=True)
        assert r.returncode == 0, r.stdout[:500]
        assemble(again, SOURCE_DATE_EPOCH="1700000000")
        with open(os.path.join(again, SBOM)) as f:
            assert json.load(f)["creationInfo"]["created"] == "2023-11-14T22:13:20Z"


def a_library_that_is_not_there_is_said():
    with tempfile.TemporaryDirectory() as d:
        r = subprocess.run([os.path.join(ROOT, "deploy", "rootfs.sh"), BINARY, os.path.join(d, "t"), "/no/such/lib.so"], capture_output=True, text=True)
        assert r.returncode == 66 and "/no/such/lib.so" in r.stderr, r


# ---- the server in it


def it_has_no_rights_and_no_place_to_write():
    s = Boxed(tree)
    try:
        s.assert_has_no_rights()
        assert os.getuid() != 0 or s.status()["Uid"].split()[0] == str(UID), s.status()["Uid"]
        shm = os.statvfs("/proc/%d/root/dev/shm" % s.pid())
        assert shm.f_blocks * shm.f_frsize == 64 << 20
        if os.getuid() == 0:  # nobody else may look
            with open("/proc/%d/environ" % s.pid()) as f:
                assert "HOME=" not in f.read()
        assert s.chat("What is the capital of France?", temperature=0, max_tokens=16).status == 200
        assert not s.error_lines(), s.tail()
    finally:
        s.stop()


def it_answers_streams_and_drains():
    """The model is mounted where SageMaker puts it; SIGTERM comes while a stream runs."""
    s = Boxed(tree, box=["--mount", os.path.join(ROOT, "models", "pebble") + ":/opt/ml/model:ro"], env={"SPILLWAY_MODEL": "/opt/ml/model"})
    try:
        assert s.get("/ping").status == 200 and s.get("/ready").status == 200
        r = s.chat("What is the capital of France?", temperature=0, max_tokens=16)
        assert r.status == 200 and "Paris" in r.json["choices"][0]["message"]["content"], r
        ask = {"prompt": "Once upon a time", "max_tokens": 1500, "temperature": 0, "ignore_eos": True}
        want = s.complete(**ask).json["choices"][0]["text"]
        rc, out = run_boxed(tree, SPILLWAY, "--healthcheck", "--port", str(s.port))
        assert rc == 0, out
        got = []
        t = threading.Thread(target=lambda: got.append(s.complete(stream=True, **ask)))
        t.start()
        eventually(lambda: got or s.metric("vllm:num_requests_running") > 0, "the stream runs")
        s.proc.send_signal(signal.SIGTERM)
        t.join()
        assert sse_text(got[0].body) == want, "the stream was cut"
        assert s.proc.wait(PATIENCE) == 0, s.tail()
    finally:
        s.stop()


def a_prefix_survives_in_a_folder_that_is_mounted():
    """Without io_uring, which the engines' profiles refuse, and with the folder as the one place to write."""
    with tempfile.TemporaryDirectory() as d:
        os.chmod(d, 0o777)
        box = ["--mount", d + ":/tmp"]
        prompt = "The fox sleeps in the forest. " * 60
        texts, cached = [], []
        for _ in range(2):
            s = Boxed(tree, "--kv-host-gib", "0.25", "--kv-nvme", "/tmp/kv:1", box=box)
            try:
                r = s.complete(prompt, max_tokens=8, temperature=0).json
                texts.append(r["choices"][0]["text"])
                cached.append(r["usage"]["prompt_tokens_details"]["cached_tokens"])
            finally:
                s.proc.send_signal(signal.SIGTERM)
                code = s.proc.wait(PATIENCE)
                assert code == 0 and not s.error_lines(), (code, s.tail())
                s.stop()
        assert texts[0] == texts[1] and cached[0] == 0 and cached[1] > 300, (texts, cached)


def it_runs_as_root_too():
    if os.getuid() == 0:
        s = Boxed(tree, uid=0)
        try:
            assert s.chat("Hi", max_tokens=4).status == 200
        finally:
            s.stop()


def it_is_not_taken_for_sagemakers():
    """As process 1 with the word `serve`: only the platform's folder or its variables may open a server to everybody."""
    assert not os.path.exists(os.path.join(tree, "opt"))
    rc, out = run_boxed(tree, SPILLWAY, "serve", "--host", "0.0.0.0", "--port", str(free_port()))
    assert rc in (64, 78) and "api-key" in out, (rc, out)


def sigterm_while_it_loads_ends_it():
    """Process 1 of a container gets no signal that it does not expect: one that comes before main has run is lost. One that comes before there is
    a process 1 ends the box alone."""
    for delay in (0, 0.1, 0.4):
        s = Boxed(tree, wait=False)
        eventually(s.has_begun, "there is a process 1")
        time.sleep(delay)
        eventually(lambda: s.proc.poll() is not None or s.proc.send_signal(signal.SIGTERM), "it ends")
        assert s.proc.wait(PATIENCE) == 0, (s.proc.returncode, s.tail())
        s.stop()


def it_needs_no_network():
    s = Boxed(tree, box=["--loopback"], wait=False)  # which nobody out here can reach

    def is_ready():
        with open(s.log_path, "rb") as f:
            return b" ready: http" in f.read()

    try:
        eventually(lambda: is_ready() or s.proc.poll() is not None, "it is ready or ends")
        assert s.proc.poll() is None and not s.error_lines(), s.tail()
    finally:
        s.stop()


# ---- the recipe


def page_block(page, word):
    """The fenced block of a page that holds the word, with continued lines joined."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as f:
        found = [b for b in re.findall(r"^```sh\n(.*?)^```$", f.read(), re.M | re.S) if word in b]
    assert len(found) == 1, "%d blocks of %s hold %s" % (len(found), page, word)
    return found[0].replace("\\\n", " ")


def every_docker_run_that_is_written_starts():
    """With the image's environment, the variables of the line, its folder for the model, and the words behind the image's name."""
    with open(os.path.join(ROOT, "Dockerfile")) as f:
        recipe = re.sub(r" *\\\n# +", " ", f.read())
    lines = [line.lstrip("# ") for text in (recipe, page_block("README.md", "docker run"), page_block("docs/OPERATIONS.md", "docker run"))
             for line in text.split("\n") if "docker run" in line]
    assert len(lines) == 4, lines
    for line in lines:
        line = line.split(" # ")[0]
        env = dict(re.findall(r"-e (\w+)=(\S+)", line), SPILLWAY_HOST="0.0.0.0")
        words = re.search(r" spillway(?::cuda)?((?: \S+)*)\s*$", line).group(1).split()
        box = [x for place in re.findall(r"-v \S+?:(\S+)", line) for x in ("--mount", os.path.join(ROOT, "models", "pebble") + ":" + place)]
        assert words in ([], ["serve"]), line
        s = Boxed(tree, box=box, env=env)
        try:
            r = s.post("/v1/completions", {"prompt": "Hi", "max_tokens": 2}, headers={"Authorization": "Bearer " + env["SPILLWAY_API_KEY"]})
            assert r.status == 200, (line, r)
            assert s.complete("Hi").status == 401, line
        finally:
            s.stop()


def the_tree_is_made_and_served_as_the_page_says():
    port = free_port()
    with tempfile.TemporaryDirectory() as d:
        text = page_block("docs/OPERATIONS.md", "box.py").replace("/tmp/", d + "/").replace("build/release/spillway", BINARY)
        log = os.path.join(d, "log")
        assert text.rstrip().endswith("--model /opt/ml/model")
        text = text.replace("tests/deploy/box.py", "exec tests/deploy/box.py").rstrip() + " --port %d >%s 2>&1" % (port, log)
        p = subprocess.Popen(["sh", "-e", "-c", text], cwd=ROOT, stdin=subprocess.DEVNULL)
        s = Boxed.__new__(Boxed)
        s.port, s.proc, s.log_path = port, p, log
        try:
            s.wait_ready()
            assert s.chat("Hi", max_tokens=4).status == 200
        finally:
            p.send_signal(signal.SIGTERM)
            assert p.wait(PATIENCE) == 0


def dockerfile():
    with open(os.path.join(ROOT, "Dockerfile")) as f:
        return f.read().replace("\\\n", " ")


def the_image_is_the_tree_and_nothing_else():
    text = dockerfile()
    stages = {}
    for line in text.split("\n"):
        m = re.match(r"FROM (\S+) AS (\S+)", line)
        if m:
            name = m.group(2)
            stages[name] = [m.group(1)]
        elif line and not line.startswith("#") and stages:
            stages[name].append(line)
    assert stages["image"][0] == "scratch" and not [x for x in stages["image"] if x.startswith(("RUN", "COPY", "ADD"))]
    for target in ("cpu", "cuda"):
        assert stages[target] == ["image", "COPY --from=build-%s /rootfs/ /" % target], stages[target]
        assert "deploy/rootfs.sh build/release/spillway /rootfs" in " ".join(stages["build-" + target])
    assert list(stages)[-1] == "cpu", "docker build without --target"
    assert 'com.amazonaws.sagemaker.capabilities.accept-bind-to-port="true"' in text
    image = "\n".join(stages["image"])
    assert re.search(r"^USER 10001:10001$", image, re.M) and 'ENTRYPOINT ["%s"]' % SPILLWAY in image
    with open(os.path.join(tree, "etc/passwd")) as f:
        assert re.search(r"^spillway:x:10001:10001:", f.read(), re.M)


TESTS = [it_is_small, it_holds_one_program_and_its_libraries, every_library_is_found_inside, the_list_of_packages_is_valid_and_complete,
         the_same_sources_give_the_same_tree, a_library_that_is_not_there_is_said, it_has_no_rights_and_no_place_to_write,
         it_answers_streams_and_drains, a_prefix_survives_in_a_folder_that_is_mounted, it_runs_as_root_too, it_is_not_taken_for_sagemakers,
         sigterm_while_it_loads_ends_it,
         it_needs_no_network, every_docker_run_that_is_written_starts, the_tree_is_made_and_served_as_the_page_says,
         the_image_is_the_tree_and_nothing_else]


def main():
    print(assemble(tree))
    return run_tests(TESTS)


if __name__ == "__main__":
    scratch.run(main)
