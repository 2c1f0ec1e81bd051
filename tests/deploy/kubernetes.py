#!/usr/bin/env python3
"""The manifests of deploy/k8s: rendered, held against the schemas of Kubernetes, and the base's command line run for real.

    kubernetes.py [OVERLAY]      prints the rendered overlay, as `kubectl kustomize deploy/k8s/overlays/OVERLAY` would

crds/ has the schemas of kinds that Kubernetes itself does not know. One line each, then `N passed, N failed, N skipped`."""

import copy
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

import jsonschema
import kubernetes_validate
import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "fault"))

from harness import BINARY, Server, run_tests  # noqa: E402

K8S = os.path.join(ROOT, "deploy", "k8s")
VERSIONS = ["1.33.0", "1.37.0"]  # the oldest that has everything that is used (preStop.sleep), and the newest
KEYS = {"containers": "name", "initContainers": "name", "volumes": "name", "volumeMounts": "mountPath", "env": "name", "ports": "containerPort"}
WITH_PODS = {"Deployment": ("spec", "template"), "LeaderWorkerSet": ("spec", "leaderWorkerTemplate")}


# ---- as much of kustomize as the overlays use; what it does not know it refuses


def merge(base, patch, key=None):
    """Strategic merge: null removes, lists of named things are merged by their key, other lists are replaced."""
    if isinstance(base, dict) and isinstance(patch, dict):
        out = dict(base)
        for k, v in patch.items():
            if v is None:
                out.pop(k, None)
            else:
                out[k] = merge(base[k], v, k) if k in base else v
        return out
    if isinstance(base, list) and isinstance(patch, list) and key in KEYS:
        name = "port" if key == "ports" and "port" in base[0] else KEYS[key]  # a Service's have no containerPort
        out = [dict(x) for x in base]
        for p in patch:
            at = [i for i, x in enumerate(out) if x[name] == p[name]]
            if at and key == "volumes":
                out[at[0]] = p  # another kind of volume takes the place of the one before
            elif at:
                out[at[0]] = merge(out[at[0]], p)
            else:
                out.append(p)
        return out
    return patch


def pod_templates(o):
    """The places in o that hold a pod's metadata and spec."""
    if o["kind"] == "Deployment":
        return [o["spec"]["template"]]
    if o["kind"] == "LeaderWorkerSet":
        t = o["spec"]["leaderWorkerTemplate"]
        return [t[k] for k in ("leaderTemplate", "workerTemplate") if k in t]
    return []


def add_labels(o, row):
    assert set(row) <= {"pairs", "includeSelectors", "includeTemplates"}, row
    pairs = row["pairs"]
    o.setdefault("metadata", {}).setdefault("labels", {}).update(pairs)
    if row.get("includeSelectors") or row.get("includeTemplates"):
        for t in pod_templates(o):
            t.setdefault("metadata", {}).setdefault("labels", {}).update(pairs)
    if row.get("includeSelectors"):
        if o["kind"] == "Deployment":
            o["spec"].setdefault("selector", {}).setdefault("matchLabels", {}).update(pairs)
        elif o["kind"] == "Service":
            o["spec"].setdefault("selector", {}).update(pairs)
        elif o["kind"] == "PodDisruptionBudget":
            o["spec"].setdefault("selector", {}).setdefault("matchLabels", {}).update(pairs)
        elif o["kind"] == "NetworkPolicy":
            o["spec"].setdefault("podSelector", {}).setdefault("matchLabels", {}).update(pairs)


def render(folder):
    with open(os.path.join(folder, "kustomization.yaml")) as f:
        k = yaml.safe_load(f)
    assert k["apiVersion"] == "kustomize.config.k8s.io/v1beta1" and k["kind"] == "Kustomization", k
    assert set(k) <= {"apiVersion", "kind", "resources", "labels", "images", "patches"}, "this test does not know all of %s" % sorted(k)
    out = []
    for r in k["resources"]:
        path = os.path.normpath(os.path.join(folder, r))
        if os.path.isdir(path):
            out += render(path)
        else:
            with open(path) as f:
                out += [o for o in yaml.safe_load_all(f) if o]
    for row in k.get("patches", []):
        assert set(row) == {"path"}, row
        with open(os.path.join(folder, row["path"])) as f:
            patch = yaml.safe_load(f)
        same = [i for i, o in enumerate(out) if (o["kind"], o["metadata"]["name"]) == (patch["kind"], patch["metadata"]["name"])]
        assert len(same) == 1, "%s fits %d objects" % (row["path"], len(same))
        out[same[0]] = merge(out[same[0]], patch)
    for row in k.get("labels", []):
        for o in out:
            add_labels(o, row)
    for row in k.get("images", []):
        for o in out:
            for t in pod_templates(o):
                for c in t["spec"]["containers"]:
                    if c["image"].split(":")[0] == row["name"]:
                        c["image"] = "%s:%s" % (row["name"], row["newTag"])
    return copy.deepcopy(out)


def folders():
    return [os.path.join(K8S, "base")] + sorted(glob.glob(os.path.join(K8S, "overlays", "*")))


def objects():
    """(where, object) of all overlays, and of the file that stands beside one."""
    for folder in folders():
        for o in render(folder):
            yield "%s: %s %s" % (os.path.basename(folder), o["kind"], o["metadata"]["name"]), o
    with open(os.path.join(K8S, "overlays", "autoscale", "hpa.yaml")) as f:
        yield "autoscale: hpa.yaml", yaml.safe_load(f)


def validate(o):
    own = os.path.join(HERE, "crds", o["kind"] + ".json")
    if os.path.exists(own):
        with open(own) as f:
            jsonschema.validate(o, json.load(f))
        for t in pod_templates(o):
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": dict(t.get("metadata", {}), name="x"), "spec": t["spec"]}
            for v in VERSIONS:
                kubernetes_validate.validate(pod, v, strict=True)
        return
    for v in VERSIONS:
        kubernetes_validate.validate(o, v, strict=True)


def pods():
    for where, o in objects():
        for t in pod_templates(o):
            yield where, t["spec"], o


def options():
    text = subprocess.run([BINARY, "--help"], capture_output=True, text=True).stdout
    return set(re.findall(r"^  --([a-z0-9-]+)", text, re.M))


# ---- tests


def every_file_is_used():
    used = set()
    for folder in folders():
        with open(os.path.join(folder, "kustomization.yaml")) as f:
            k = yaml.safe_load(f)
        used |= {os.path.join(folder, r) for r in k["resources"]} | {os.path.join(folder, p["path"]) for p in k.get("patches", [])}
        used.add(os.path.join(folder, "kustomization.yaml"))
    used.add(os.path.join(K8S, "overlays", "autoscale", "hpa.yaml"))  # named there as the other way
    have = set(glob.glob(os.path.join(K8S, "*", "*.yaml")) + glob.glob(os.path.join(K8S, "overlays", "*", "*.yaml")))
    assert have <= used, sorted(have - used)
    assert len(folders()) >= 13


def every_object_fits_its_schema():
    n = 0
    for where, o in objects():
        try:
            validate(o)
        except Exception as e:
            raise AssertionError("%s: %s" % (where, str(e)[:300])) from e
        n += 1
    assert n > 40, n


def a_wrong_object_is_found():
    for where, o in objects():
        for t in pod_templates(o):
            t["spec"]["containers"][0]["readynessProbe"] = {}
            try:
                validate(o)
            except Exception:
                continue
            raise AssertionError("%s: a misspelt probe passed" % where)


def a_pod_has_what_it_needs_to_stop_in():
    for where, spec, _ in pods():
        c = spec["containers"][0]
        drain = [int(a.split("=")[1]) for a in c["args"] if a.startswith("--drain-seconds=")]
        assert drain, where
        assert spec["terminationGracePeriodSeconds"] >= c["lifecycle"]["preStop"]["sleep"]["seconds"] + drain[0] + 10, where


def a_pod_runs_without_rights():
    for where, spec, _ in pods():
        assert spec["securityContext"]["runAsNonRoot"] and spec["enableServiceLinks"] is False and spec["automountServiceAccountToken"] is False, where
        for c in spec["containers"] + spec.get("initContainers", []):
            s = c["securityContext"]
            assert s["readOnlyRootFilesystem"] and not s["allowPrivilegeEscalation"] and s["capabilities"]["drop"] == ["ALL"], where
            assert c["resources"]["requests"]["memory"] == c["resources"]["limits"]["memory"], "%s: memory is bounded, so it is asked for" % where
            gpus = [c["resources"][k].get("nvidia.com/gpu") for k in ("requests", "limits")]
            assert gpus[0] == gpus[1], where


def what_is_mounted_is_there_and_what_is_there_is_mounted():
    for where, spec, _ in pods():
        volumes = {v["name"] for v in spec["volumes"]}
        mounts = {m["name"] for c in spec["containers"] for m in c["volumeMounts"]}
        assert volumes == mounts, "%s: %s" % (where, volumes ^ mounts)


def what_must_be_made_by_hand_is_said():
    said = ""
    for path in glob.glob(os.path.join(K8S, "*", "kustomization.yaml")) + glob.glob(os.path.join(K8S, "overlays", "*", "kustomization.yaml")):
        with open(path) as f:
            said += f.read()
    for where, spec, _ in pods():
        for v in spec["volumes"]:
            name = v.get("secret", {}).get("secretName") or v.get("persistentVolumeClaim", {}).get("claimName")
            assert not name or '"%s"' % name in said or "generic %s " % name in said, "%s: nothing says where %s comes from" % (where, name)


def every_option_exists():
    known = options()
    assert len(known) > 60
    for where, spec, _ in pods():
        c = spec["containers"][0]
        names = [a.split("=")[0].lstrip("-") for a in c["args"] if a.startswith("--")]
        names += [e["name"][len("SPILLWAY_"):].lower().replace("_", "-") for e in c.get("env", []) if e["name"].startswith("SPILLWAY_")]
        assert set(names) <= known, "%s: %s" % (where, set(names) - known)


def prefill_and_decode_find_each_other():
    kinds = {}
    for o in render(os.path.join(K8S, "overlays", "prefill-decode")):
        kinds.setdefault(o["kind"], {})[o["metadata"]["name"]] = o
    decode, prefill = [kinds["Deployment"][n]["spec"]["template"] for n in ("spillway", "spillway-prefill")]
    env = {e["name"]: e.get("value") for e in decode["spec"]["containers"][0]["env"]}
    args = dict(a.lstrip("-").split("=", 1) for a in prefill["spec"]["containers"][0]["args"] if "=" in a)
    assert decode["metadata"]["labels"]["llm-d.ai/role"] == env["SPILLWAY_ROLE"] == "decode"
    assert prefill["metadata"]["labels"]["llm-d.ai/role"] == args["role"] == "prefill"
    # the decode server asks the Service of all prefill pods, at the port that they listen on, with the same keys
    host, port = env["SPILLWAY_KV_PEER"].split(":")
    peers = kinds["Service"][host]["spec"]
    assert peers["clusterIP"] == "None" and peers["ports"][0]["port"] == int(port)
    assert peers["selector"].items() <= prefill["metadata"]["labels"].items() and args["kv-peer-listen"].endswith(":" + port)
    assert [p["containerPort"] for p in prefill["spec"]["containers"][0]["ports"] if p["name"] == peers["ports"][0]["targetPort"]] == [int(port)]
    assert args["kv-peer-key-file"] == env["SPILLWAY_KV_PEER_KEY_FILE"] and args["kv-mac-key-file"] == env["SPILLWAY_KV_MAC_KEY_FILE"]
    # the sidecar stands where the pool looks for decode pods, the server where it looks for prefill pods
    sidecar = decode["spec"]["initContainers"][0]
    said = dict(a.lstrip("-").split("=") for a in sidecar["args"])
    pool = kinds["InferencePool"]["spillway"]["spec"]
    assert sidecar["restartPolicy"] == "Always" and pool["targetPorts"] == [{"number": int(said["port"])}] and args["port"] == said["port"]
    assert "--port=" + said["vllm-port"] in decode["spec"]["containers"][0]["args"]
    group = kinds["NetworkPolicy"]["spillway-group"]["spec"]
    for selector in (pool["selector"], group["podSelector"], group["ingress"][1]["from"][0]["podSelector"], group["egress"][1]["to"][0]["podSelector"]):
        for pod in (decode, prefill):
            assert selector["matchLabels"].items() <= pod["metadata"]["labels"].items(), selector


def with_tls_every_probe_asks_by_it():
    kinds = {o["kind"]: o for o in render(os.path.join(K8S, "overlays", "tls"))}
    c = kinds["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    env = {e["name"]: e["value"] for e in c["env"]}
    mounted = [m["mountPath"] for m in c["volumeMounts"] if m["name"] == "tls"]
    assert [os.path.dirname(env[k]) for k in ("SPILLWAY_TLS_CERT", "SPILLWAY_TLS_KEY")] == mounted * 2
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert c[probe]["httpGet"]["scheme"] == "HTTPS" and c[probe]["httpGet"]["path"] in ("/ready", "/health"), c[probe]
    assert [p["port"] for p in kinds["Service"]["spec"]["ports"]] == [80, 443]


def the_base_serves_as_it_is_written():
    spec = [s for where, s, _ in pods() if where.startswith("base:")][0]
    c = spec["containers"][0]
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write("a-key-of-the-test\n")
        keys.flush()
        assert c["args"][0] == "serve"
        args = [a for a in c["args"][1:] if not a.startswith(("--port=", "--host=", "--api-key-file="))]
        s = Server(*args, "--api-key-file", keys.name, env={"SPILLWAY_PORT": "tcp://10.0.0.1:80", "SPILLWAY_SERVICE_HOST": "10.0.0.1"})
        try:
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert s.get(c[probe]["httpGet"]["path"]).status == 200, probe
            assert s.get("/metrics").status == 200, "--open-metrics"
            assert s.chat("Hi", max_tokens=4).status == 401
            r = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4},
                       headers={"Authorization": "Bearer a-key-of-the-test"})
            assert r.status == 200, r
        finally:
            s.stop()


def the_dockerfile_is_plain():
    r = subprocess.run([os.path.join(os.path.dirname(sys.executable), "hadolint"), "--config", os.path.join(ROOT, ".hadolint.yaml"),
                        os.path.join(ROOT, "Dockerfile")], capture_output=True, text=True)
    assert r.returncode == 0, r.stdout + r.stderr


TESTS = [every_file_is_used, every_object_fits_its_schema, a_wrong_object_is_found, a_pod_has_what_it_needs_to_stop_in, a_pod_runs_without_rights,
         what_is_mounted_is_there_and_what_is_there_is_mounted, what_must_be_made_by_hand_is_said, every_option_exists,
         prefill_and_decode_find_each_other, with_tls_every_probe_asks_by_it,
         the_base_serves_as_it_is_written, the_dockerfile_is_plain]


def main():
    if len(sys.argv) > 1:
        name = sys.argv[1]
        print(yaml.safe_dump_all(render(os.path.join(K8S, "base" if name == "base" else os.path.join("overlays", name))), sort_keys=False))
        return 0
    return run_tests(TESTS)


if __name__ == "__main__":
    sys.exit(main())
